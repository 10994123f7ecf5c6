"""Training and judging descriptors on hand-made pairs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import nan
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn

from pcnn.losses import HardestContrastive, InfoNCE
from pcnn.metrics.registration import JudgedPairs, PairId, PairResult
from pcnn.models import ResUNetBN2C
from pcnn.registration.transforms import inverse, transform_points
from pcnn.tasks import RegistrationTask
from pcnn.tasks.registration import gathered
from pcnn.tasks.schedules import constant
from tests.forking import require_fork
from tests.registration.poses import random_pose
from tests.tasks.pairs import Pairs, pairs_of, views
from tests.tasks.quiet import Lookup, loader, trainer_for

VOXEL = 0.1


def task_of(net: nn.Module, loss: nn.Module | None = None, **options: Any) -> RegistrationTask:
    return RegistrationTask(
        net,
        loss or HardestContrastive(256, 64),
        partial(torch.optim.SGD, lr=0.1, momentum=0.8),
        constant,
        voxel_size=VOXEL,
        benchmark="threedmatch",
        **options,
    )


def small(width: float = 0.25, **options: Any) -> nn.Module:
    torch.manual_seed(0)
    return ResUNetBN2C(width=width, out_channels=16, first_kernel=3, **options)


def with_right_matches(right: int, of: int, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Two clouds of so many points on a lattice, the truth, and for every source row its match."""
    generator = torch.Generator().manual_seed(seed)
    cells = torch.randperm(1000, generator=generator)[:of]
    grid = torch.stack([cells // 100, cells // 10 % 10, cells % 10], 1)
    target = (grid * 0.5 + 0.05).float()
    truth = random_pose(seed)
    source = transform_points(inverse(truth), target.double()).float()
    partner = torch.arange(of)
    partner[right:] = partner[right:].roll(1)
    return source, target, truth, partner


def hand_made(rights: list[int], of: int, names: str) -> Pairs:
    """Pairs of scenes named by a letter; so many matches are right; features are descriptors."""
    sources, targets, truths, features = [], [], [], []
    for seed, right in enumerate(rights):
        source, target, truth, partner = with_right_matches(right, of, seed)
        sources.append(source)
        targets.append(target)
        truths.append(truth)
        code = torch.randn(of, 32, generator=torch.Generator().manual_seed(seed))
        features.append((code[partner], code))
    return Pairs(
        *(SimpleNamespace(features=torch.cat(side)) for side in zip(*features, strict=True)),  # type: ignore[arg-type]
        torch.cat(sources),
        torch.cat(targets),
        torch.arange(len(rights) + 1) * of,
        torch.arange(len(rights) + 1) * of,
        torch.stack(truths),
        tuple(PairId(letter, 0, 2) for letter in names),
        VOXEL,
    )


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_figures_of_hand_made_pairs(tmp_path: Any) -> None:
    # 40, 12 and 2 of 40 matches are right: 5 % is not above 5 %
    first = hand_made([40, 12], 40, "ab")
    second = hand_made([2], 40, "c")
    task = task_of(Lookup())
    trainer = trainer_for(tmp_path)
    (found,) = trainer.validate(task, loader([first, second]), verbose=False)
    assert found["val/inlier_ratio"] == pytest.approx((1 + 0.3 + 0.05) / 3)
    assert found["val/feat_match_ratio"] == pytest.approx(2 / 3)
    assert found["val/rr"] == pytest.approx(2 / 3)
    assert found["val/rre"] < 0.1
    assert found["val/rte"] < 0.001
    results = task.results["val"]
    assert [one.scene for one in results] == ["a", "b", "c"]
    assert [one.inlier_ratio for one in results] == pytest.approx([1, 0.3, 0.05])
    assert results[2].loss != results[0].loss
    assert found["val/loss"] == pytest.approx(sum(one.loss for one in results) / 3)
    # a second pass starts from zero, and a pair that comes twice counts once
    (again,) = trainer.validate(task, loader([first, second, second]), verbose=False)
    assert again == found
    (tested,) = trainer.test(task, loader([second]), verbose=False)
    assert tested["test/feat_match_ratio"] == 0
    assert tested["test/rr"] == 0
    assert "test/rre" not in tested


def test_hits_and_success_follow_their_thresholds() -> None:
    batch = hand_made([40, 40], 40, "ab")
    shift = torch.tensor([0.08, 0.0, 0.0])
    batch.target_places[40:] += shift  # the truth says otherwise: every match of b is 8 cm off

    def figures(**options: Any) -> list[tuple[float, bool, bool]]:
        task = task_of(Lookup(), **options)
        task.evaluate(task.arrived(batch), "val")
        pairs = JudgedPairs(list(task._seen["val"].values()), task.rules)
        return list(zip(pairs.inlier_ratio, pairs.enough, pairs.registered, strict=True))

    assert figures() == [(1, True, True), (1, True, True)]
    assert figures(hit_distance=0.05) == [(1, True, True), (0, False, True)]
    assert figures(success_rte=0.05) == [(1, True, True), (1, True, False)]
    assert figures(val_hypotheses=0) == [(1, True, False), (1, True, False)]


@pytest.mark.parametrize(("geometry", "steps"), [("voxel", 25), ("point", 12)])
def test_descriptors_improve(geometry: str, steps: int, tmp_path: Any) -> None:
    batch = views([0, 1], VOXEL, geometry, 1000)
    task = task_of(small(), val_samples=300, hit_distance=1.5 * VOXEL, val_hypotheses=0)
    trainer = trainer_for(tmp_path, max_steps=steps, max_epochs=1, num_sanity_val_steps=0)
    (before,) = trainer.validate(task, loader([batch]), verbose=False)
    trainer.fit(task, loader([batch] * steps))
    (after,) = trainer.validate(task, loader([batch]), verbose=False)
    assert after["val/loss"] < 0.9 * before["val/loss"]
    assert after["val/inlier_ratio"] > 1.5 * before["val/inlier_ratio"]
    assert "val/rr" not in after


def cloud(*rows: tuple[float, float, float]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float32).reshape(-1, 3)


def far() -> Tensor:
    return torch.rand(30, 3) + 50


DEGENERATE: dict[str, Callable[[], tuple[list[Tensor], list[Tensor]]]] = {
    "no positives": lambda: ([torch.rand(40, 3)], [far()]),
    "all masked": lambda: ([torch.rand(40, 3) * 0.05], [torch.rand(40, 3) * 0.05]),
    "one point": lambda: ([cloud((0, 0, 0))], [cloud((0, 0, 0))]),
    "an empty cloud": lambda: ([torch.rand(40, 3), torch.rand(9, 3)], [cloud(), torch.rand(30, 3)]),
    "nothing": lambda: ([cloud()], [cloud()]),
    "a pair without": lambda: ([torch.rand(40, 3)] * 2, [torch.rand(40, 3), far()]),
}


@pytest.mark.parametrize(
    ("geometry", "loss"),
    [
        ("voxel", HardestContrastive(64, 32)),
        ("point", HardestContrastive()),
        ("point", InfoNCE(samples=64)),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_degenerate_batches_train_on(geometry: str, loss: nn.Module, tmp_path: Any) -> None:
    torch.manual_seed(0)
    batches = []
    for make in DEGENERATE.values():
        sources, targets = make()
        poses = [torch.eye(4, dtype=torch.float64)] * len(sources)
        batches.append(pairs_of(sources, targets, poses, VOXEL, geometry))
    net = small(0.125, normalize_features=False)
    task = task_of(net, loss, val_samples=20, val_hypotheses=20)
    seen: list[dict[str, bool]] = []

    def look(*_: Any) -> None:
        found = {name: parameter.grad is not None for name, parameter in net.named_parameters()}
        seen.append(found)

    task.on_before_optimizer_step = look  # type: ignore[method-assign, assignment]
    trainer = trainer_for(tmp_path, max_epochs=1, num_sanity_val_steps=0)
    trainer.fit(task, loader(batches), loader(batches))
    assert trainer.global_step == len(seen) == len(batches)
    # every parameter has a gradient in every step: a rank that had none would hang the others
    assert all(all(found.values()) for found in seen)
    for name, value in net.state_dict().items():
        assert torch.isfinite(value).all(), name
    assert trainer.callback_metrics["val/loss"].isfinite()


# a pair of rank 0, one that both ranks had, one of rank 1
RANKS = [
    [PairResult("b", 0, 1, 1.0, 0.1, loss=0.3), PairResult("s", 0, 1, nan, nan, loss=0.5)],
    [PairResult("s", 0, 1, nan, nan, loss=0.5), PairResult("a", 0, 1, 20.0, 0.2, loss=0.7)],
]


def gather(rank: int, store: str, folder: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    found = gathered({one.pair: one for one in RANKS[rank]})
    Path(folder, str(rank)).write_text(repr(found))
    dist.destroy_process_group()


def test_every_rank_gets_every_pair_once(tmp_path: Path) -> None:
    require_fork()
    mp.start_processes(
        gather, (str(tmp_path / "store"), str(tmp_path)), nprocs=2, start_method="fork"
    )
    found = [Path(tmp_path, str(rank)).read_text() for rank in (0, 1)]
    assert found == [repr([RANKS[1][1], *RANKS[0]])] * 2


@pytest.mark.gpu
@pytest.mark.parametrize("geometry", ["voxel", "point"])
def test_a_batch_prepared_on_a_side_stream_is_the_same(geometry: str) -> None:
    batch, device = views([0, 1], VOXEL, geometry), torch.device("cuda")
    wanted = task_of(small()).arrived(batch)
    values = []
    for prefetch in (False, True):
        task = task_of(small().cuda(), prefetch_maps=prefetch).train()
        for _ in range(3):  # the stream's first use differs from later ones
            moved = task.transfer_batch_to_device(batch, device, 0)
        assert torch.equal(moved.positives.cpu(), wanted.positives)
        assert torch.equal(moved.positive_offsets.cpu(), wanted.positive_offsets)
        torch.manual_seed(0)
        loss = task.loss(task(moved.source), task(moved.target), moved)
        loss.backward()
        values.append(float(loss))
    assert values[0] == pytest.approx(values[1], rel=1e-3)
