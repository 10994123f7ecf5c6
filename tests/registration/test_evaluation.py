from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from pcnn.datasets.placement import OnPoints, OnVoxels, Placement
from pcnn.datasets.registration import RegistrationPair
from pcnn.datasets.registration.gt_files import scene_pairs
from pcnn.errors import FileError
from pcnn.metrics.registration import protocol, summarize
from pcnn.models import ResUNetBN2C
from pcnn.registration import evaluation
from pcnn.registration.cell_size import Rescaled
from pcnn.registration.descriptor import Described, TurnedAtRandom, described_all
from pcnn.registration.evaluation import FIGURES, Evaluation, evaluate_pairs
from pcnn.registration.network_descriptor import NetworkDescriptor
from pcnn.registration.settings import EstimateSettings, RansacSettings
from pcnn.registration.transforms import transform_points
from tests.datasets.registration.scenes import fragments
from tests.registration.clouds import place


class Scenes:
    """Two scenes of the same fragments, their truth as made from poses."""

    name, ground_truth, source_kind = "scenes", "gt.log", "real"

    def __init__(self, benchmark: str = "threedmatch") -> None:
        self.benchmark = benchmark
        self.clouds, self.poses = fragments(3)
        made, _ = scene_pairs(self.clouds, self.poses, overlaps=(0.2, 1.0))
        self.asked: list[tuple[str, int]] = []
        # fragment numbers doubled, or every pair would be a consecutive one
        self.pairs = [
            RegistrationPair(
                scene,
                2 * pair.target,
                2 * pair.source,
                pair.transform,
                pair.information if benchmark == "threedmatch" else None,
                index=pair.index,
            )
            for scene in ("a", "b")
            for pair in made
        ]

    def cloud(self, scene: str, index: int) -> Tensor:
        self.asked.append((scene, index))
        return self.clouds[index // 2].float()

    def notes(self) -> list[str]:
        return []


class Places:
    """Descriptors that are the places themselves, with noise for the last cloud of a scene."""

    name, voxel_size = "places", 0.05

    def __init__(self, scenes: Scenes, noise: float = 0.0) -> None:
        self.scenes, self.noise = scenes, noise

    def __call__(self, points: Tensor) -> Described:
        for number, cloud in self.scenes.clouds.items():
            if len(cloud) == len(points) and torch.equal(cloud.float(), points):
                world = transform_points(self.scenes.poses[number], cloud).float()
                if number == 2:
                    world = world + self.noise * torch.randn(world.shape)
                return Described(points, world)
        raise ValueError("an unknown cloud")


SETTINGS = EstimateSettings(RansacSettings(0.05, hypotheses=3000))


def test_right_descriptors_register_everything_and_each_cloud_is_described_once() -> None:
    scenes = Scenes()
    rules = protocol("predator", "threedmatch")
    done = evaluate_pairs(scenes, Places(scenes), rules, SETTINGS, [1500, 900])
    assert list(done.results) == [1500, 900]
    for number, results in done.results.items():
        summary = summarize(results, rules)
        assert (summary.rr, summary.counted) == (1, 4)
        assert summary.rre < 5  # the nearest of a few hundred samples is not the same point
        assert all(result.matches == number for result in results)
        assert all(0 < result.inliers <= number for result in results)
    assert sorted(scenes.asked) == [(s, i) for s in "ab" for i in (0, 2, 4)]


def test_an_interrupted_evaluation_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "BATCH", 1)
    monkeypatch.setattr(evaluation, "CLOUDS", 2)
    scenes, samples, path = Scenes(), [300, None], tmp_path / "some.npz"
    given = scenes, Places(scenes), protocol("strict", "threedmatch"), SETTINGS, samples
    whole, some, rest = (Evaluation(scenes.pairs, samples) for _ in range(3))
    evaluate_pairs(*given, evaluation=whole)

    def stop(pairs: int) -> None:
        if some.done.sum() == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate_pairs(*given, evaluation=some, progress=stop)
    assert len(some.results[300]) == 2 < len(scenes.pairs)
    some.write(path, "these settings")
    assert not rest.read(path, "others")
    assert not Evaluation(scenes.pairs[:3], samples).read(path, "these settings")
    assert rest.read(path, "these settings")
    asked, told = len(scenes.asked), list[int]()
    evaluate_pairs(*given, evaluation=rest, progress=told.append)
    assert told == [1, 1]
    assert len(scenes.asked) - asked == 3  # clouds of the pairs that were left
    timed = FIGURES.index("seconds")
    np.testing.assert_array_equal(np.delete(rest.table, timed, 2), np.delete(whole.table, timed, 2))
    assert rest.recall(given[2]) == summarize(rest.results[300], given[2]).rr_pairs
    path.write_bytes(b"damaged")
    with pytest.raises(FileError, match=r"some\.npz"):
        rest.read(path, "these settings")


def test_without_gt_info_rmse_is_that_of_shared_points() -> None:
    scenes = Scenes("kitti")
    rules = protocol("pointcnnpp", "kitti")  # RRE < 1 deg and RMSE < 0.2 m
    settings = EstimateSettings(RansacSettings(0.01, hypotheses=3000), sampling="random_matches")
    done = evaluate_pairs(scenes, Places(scenes), rules, settings, [None])
    assert all(0 < result.rmse < 0.05 for result in done.results[None])
    assert summarize(done.results[None], rules).rr == 1
    plain = protocol("fcgf", "kitti")
    unjudged = evaluate_pairs(scenes, Places(scenes), plain, settings, [200])
    assert all(torch.tensor(result.rmse).isnan() for result in unjudged.results[200])


@pytest.mark.parametrize("placement", [OnVoxels(), OnPoints(thin=0.05)])
def test_clouds_together_are_described_as_each_alone(placement: Placement) -> None:
    torch.manual_seed(0)
    net = ResUNetBN2C(out_channels=16, width=0.25).eval()
    descriptor = NetworkDescriptor(net, 0.1, "net", placement)
    clouds = [place(seed)[:: 9 + seed] for seed in range(3)]
    turned = TurnedAtRandom(Rescaled(descriptor, 1.5))
    for one in (descriptor, turned):
        together = described_all(one, clouds, ["a", "b", "c"])
        for found, points in zip(together, clouds, strict=True):
            alone = one(points)
            torch.testing.assert_close(found.points, alone.points)
            torch.testing.assert_close(found.features, alone.features, atol=1e-4, rtol=1e-4)
    with pytest.raises(ValueError, match=r"^b: "):
        described_all(turned, [clouds[0], clouds[0][:0], clouds[1]], ["a", "b", "c"])
