from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import pad_sequence

from pcnn.registration import nearest
from pcnn.registration.descriptor import Described
from pcnn.registration.estimate import estimate_all
from pcnn.registration.evidence import Clouds
from pcnn.registration.matching import match, sampled_matches
from pcnn.registration.nearest import Nearest, nearest_rows
from pcnn.registration.settings import EstimateSettings, RansacSettings


@pytest.mark.parametrize("entries", [1 << 26, 1000])
def test_nearest_places_are_those_of_all_pairs_of_the_other_cloud(
    entries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nearest, "CACHED", entries)
    # 60 m from zero the products of float32 are off by a centimetre
    clouds = [60 + torch.rand(number, 3) for number in (400, 150, 300, 90)]
    held = Clouds.of([Described(points, points) for points in clouds], 0.3)
    query = (60 + 1.2 * torch.rand(4, 70, 3)).double()
    gap, index, _ = held.nearest(query, 0.1)
    of_all = held.others[0](query)
    starts = [0, 400, 550, 850]
    for number, cloud in enumerate((2, 3, 0, 1)):
        least = torch.cdist(query[number], clouds[cloud].double()).min(1)
        within = least.values < 0.1
        assert 5 < int(within.sum()) < 65
        assert torch.equal(index[number, within], least.indices[within] + starts[cloud])
        assert bool(
            (gap[number, ~within] == torch.inf).all() & (index[number, ~within] == -1).all()
        )
        assert torch.equal(of_all[number], least.indices)
        expected = least.values.float()
        torch.testing.assert_close(gap[number, within], expected[within], atol=1e-5, rtol=0)
    for every in (1, 2):  # of some of the own cloud
        spread, axes = held.axes(query, 0.3, every)
        of_all, directions = held.own.axes(query, 0.3, every)
        torch.testing.assert_close(of_all, spread, atol=1e-9, rtol=0)
        clear = spread.diff(dim=2).amin(2) > 1e-4
        same = (axes * directions).sum(2).abs()[clear]
        torch.testing.assert_close(same, torch.ones_like(same), atol=1e-7, rtol=0)


def test_nearest_descriptors_equal_all_distances() -> None:
    query, others = torch.rand(70, 33) + 50, torch.rand(90, 33) + 50
    expected = torch.cdist(query.double(), others.double()).argmin(1)
    assert torch.equal(nearest_rows([query], [others])[0], expected)
    settings = EstimateSettings(RansacSettings(0.1))
    for bad in (torch.nan, torch.inf):
        others[3, 2] = bad
        ends = [Described(one[:, :3], one) for one in (query, others)]
        for source, target in (ends, ends[::-1]):
            with pytest.raises(ValueError, match=r"^b: "):
                estimate_all([ends[0], source], [ends[0], target], settings, names=["a", "b"])


def test_pairs_together_meet_the_nearest_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = (30, 50), (70, 1), (1, 40), (90, 80)
    clouds = [[torch.rand(number, 33) + 50 for number in pair] for pair in sizes]
    queries, others = zip(*clouds, strict=True)
    padded = [pad_sequence(side, batch_first=True) for side in (queries, others)]
    there = torch.arange(80)[:, None] < torch.tensor([[[other]] for _, other in sizes])
    monkeypatch.setattr(nearest, "CACHED", 700)
    on_device = Nearest(padded[1], there)(padded[0])
    for number, (query, other) in enumerate(clouds):
        expected = torch.cdist(query.double(), other.double()).argmin(1)
        for found in (nearest_rows(queries, others), on_device):
            assert torch.equal(found[number, : len(query)], expected)


def test_mutual_matches_agree_both_ways() -> None:
    source, target = torch.tensor([[0.0], [1.0], [1.2]]), torch.tensor([[0.1], [1.1]])
    expected: dict[Any, Any] = {"one_way": [[0, 1, 2], [0, 1, 1]], "mutual": [[0, 1], [0, 1]]}
    for matching, rows in expected.items():
        found, back = match([source, target], [target, source], matching)
        assert [one.tolist() for one in found] == rows
        assert [one.tolist() for one in back] == [[0, 1], [0, 1]]


def test_sampling_rules() -> None:
    source = torch.arange(40.0)[:, None]
    target = source + torch.linspace(0, 0.4, 40)[:, None]

    def draw(rule: Any, seed: int = 0, samples: int | None = 10) -> list[int]:
        none, found = sampled_matches(
            [source[:0], source], [target, target], samples, "one_way", rule, [5, seed]
        )
        assert [len(rows) for rows in none] == [0, 0]
        assert len(found[0]) == len(found[1])
        return found[0].tolist()

    assert sorted(draw("random_matches")) != list(range(10))
    assert len(set(draw("random_points"))) == 10
    for rule in ("random_matches", "random_points"):
        assert draw(rule) == draw(rule)
        assert draw(rule) != draw(rule, 1)
    assert len(draw("random_points", 0, None)) == len(draw("random_matches", 0, 999)) == 40
    with pytest.raises(ValueError, match="samples"):
        draw("random_matches", 0, 0)
    for wrong in ({"matching": "both"}, {"sampling": "best"}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            EstimateSettings(RansacSettings(0.1), **wrong)  # type: ignore[arg-type]
