"""A batch without room is left out, or computed in parts, on all ranks alike."""

from __future__ import annotations

import json
import logging
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from pcnn.datasets.batches import CollateTraining
from pcnn.datasets.placement import OnVoxels
from pcnn.experiment.errors import ConfigError
from pcnn.experiment.job import told_out_of_memory
from pcnn.geometry import VoxelGrid
from pcnn.tasks.network_task import NetworkTask
from pcnn.tasks.schedules import constant
from tests.callbacks.test_agreement import alike_on_two_ranks
from tests.datasets.clouds import cloud
from tests.tasks.quiet import loader, trainer_for


class Rows:
    """A batch of rows, of which each is a sample."""

    def __init__(self, rows: Tensor) -> None:
        self.rows, self.batch_size = rows, len(rows)

    def to(self, *arguments: Any, **named: Any) -> Rows:
        return self

    def halves(self) -> list[tuple[Rows, int]]:
        middle = self.batch_size // 2
        return [(Rows(one), len(one)) for one in self.rows.tensor_split([middle])] if middle else []


class Small(NetworkTask):
    """Steps without room for many rows, from one step of one rank on."""

    def __init__(self, room: int, at: int, rank: int = 0, backward: bool = False) -> None:
        torch.manual_seed(3)
        net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
        super().__init__(net, partial(torch.optim.SGD, lr=0.1), constant)
        self.room, self.at, self.of_rank, self.in_backward = room, at, rank, backward
        self.dtypes: list[torch.dtype] = []

    def training_step(self, batch: Rows, batch_idx: int) -> Tensor:
        short = batch.batch_size > self.room and self.global_step == self.at
        short = short and self.global_rank == self.of_rank
        if short and not self.in_backward:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
        first = self.net[0](batch.rows)
        self.dtypes.append(first.dtype)
        if short:
            first.register_hook(full)
        self.log("train/loss", first.detach().mean(), batch_size=batch.batch_size)
        return self.net[2](self.net[1](first)).square().mean()


def full(gradient: Tensor) -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")


def batches(rank: int = 0) -> list[Rows]:
    generator = torch.Generator().manual_seed(rank)
    return [Rows(torch.randn(4, 3, generator=generator)) for _ in range(6)]


def trained(path: Path, task: NetworkTask, how: str, given: list[Rows], **options: Any) -> Tensor:
    task.out_of_memory = how  # type: ignore[assignment]
    steps = len(given) // options.get("accumulate_grad_batches", 1)
    trainer_for(path, max_steps=steps, **options).fit(task, loader(given))
    assert "training_step" not in vars(task)
    return torch.cat([one.detach().reshape(-1) for one in task.parameters()])


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("accumulated", [1, 2])
def test_parts_give_the_step_of_the_batch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, backward: bool, accumulated: int
) -> None:
    options = {"accumulate_grad_batches": accumulated}
    whole = trained(tmp_path, Small(9, 0), "raise", batches(), **options)
    assert_close(trained(tmp_path, Small(9, 0), "split", batches(), **options), whole)
    with caplog.at_level(logging.WARNING):
        task = Small(1, 1, backward=backward)
        parted = trained(tmp_path, task, "split", batches(), **options)
    if accumulated == 1:
        assert_close(parted, whole)
        said = "4 samples need more memory than the device has; they are computed in parts"
        assert said in caplog.text
    else:  # what the first of two batches gave cannot be told from what broke off
        assert "left out, with its step" in caplog.text
    assert "global_batch_size" in caplog.text


def test_parts_have_the_precision_of_the_batch(tmp_path: Path) -> None:
    task = Small(1, 1)
    trained(tmp_path, task, "split", batches(), precision="bf16-mixed")
    assert len(task.dtypes) > 6
    assert set(task.dtypes) == {torch.bfloat16}


def test_a_step_that_is_left_out_teaches_nothing(tmp_path: Path) -> None:
    given = batches()
    without = trained(tmp_path, Small(9, 0), "raise", given[:2] + given[3:])
    for room, how in ((1, "skip"), (0, "split")):
        for backward in (False, True):
            task = Small(room, 2, backward=backward)
            assert_close(trained(tmp_path, task, how, given), without)
    with pytest.raises(torch.OutOfMemoryError):
        trained(tmp_path, Small(1, 2), "raise", given)


def on_rank(rank: int, folder: Path) -> None:
    found = {}
    options: dict[str, Any] = {"strategy": "ddp", "devices": 2, "use_distributed_sampler": False}
    for name, how, task in (
        ("whole", "raise", Small(9, 0)),
        ("parts", "split", Small(1, 2, rank=1)),
        ("skip", "skip", Small(1, 2, rank=1, backward=True)),
    ):
        found[name] = trained(folder, task, how, batches(rank), **options).tolist()
    given = batches(rank)[:2] + batches(rank)[3:]
    found["without"] = trained(folder, Small(9, 0), "raise", given, **options).tolist()
    (folder / f"{rank}.json").write_text(json.dumps(found))


@pytest.mark.filterwarnings("ignore")
def test_all_ranks_do_alike(tmp_path: Path) -> None:
    found = alike_on_two_ranks(on_rank, tmp_path)
    for one, other in (("parts", "whole"), ("skip", "without")):
        assert_close(torch.tensor(found[one]), torch.tensor(found[other]))


def test_halves_of_a_batch_hold_its_samples() -> None:
    samples = [OnVoxels().sample(cloud(30 + seed, seed), 1.0) for seed in range(3)]
    batch = CollateTraining(4)(samples)
    (first, rows), (second, others) = batch.halves()
    assert (first.names, second.names) == (batch.names[:1], batch.names[1:])
    assert rows + others == len(batch.labels)
    for half, part in ((first, samples[:1]), (second, samples[1:])):
        whole = CollateTraining(4)(part)
        assert isinstance(half.tensor.geometry, VoxelGrid)
        assert torch.equal(half.tensor.geometry.keys, whole.tensor.geometry.keys)
        assert torch.equal(half.tensor.features, whole.tensor.features)
        assert torch.equal(half.labels, whole.labels)
        half.tensor.geometry.validate()
    assert first.halves() == []


def test_the_end_of_a_run_names_the_settings(tmp_path: Path) -> None:
    said = pytest.raises(ConfigError, match=r"Tried to allocate 2 GiB\npossible: .*recompute")
    with said, told_out_of_memory(tmp_path):
        full(torch.zeros(1))
