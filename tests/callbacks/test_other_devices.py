"""A training goes on with the samples that are left, on any number of devices."""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from pcnn.callbacks import Checkpoint
from pcnn.datamodules.batch_stream import BatchStream, batches_done
from pcnn.datasets.sampler import EpochSampler
from tests.callbacks.tiny import Data, Keyed, Task, trainer_for

SAMPLES = 24


class Shared(Data):
    """Eight samples a step: in one batch, or in several that are accumulated."""

    def __init__(self, batch_size: int) -> None:
        super().__init__()
        self.batch_size = batch_size
        self.seen: list[tuple[int, int]] = []

    def train_sampler(self) -> EpochSampler:
        return EpochSampler(SAMPLES, self.batch_size, seed=1)

    def train_dataloader(self) -> BatchStream:
        def noted(samples: list[tuple[tuple[int, int], torch.Tensor]]) -> torch.Tensor:
            self.seen += [key for key, _ in samples]
            return torch.stack([sample for _, sample in samples])

        position: Any = lambda: batches_done(self.trainer)  # noqa: E731
        return BatchStream(Named(), self.train_sampler(), position=position, collate=noted)


class Named(Keyed):
    """Samples with their keys."""

    def __getitem__(self, key: tuple[int, int]) -> Any:
        return key, super().__getitem__(key)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("before", "after"), [(8, 4), (2, 8)])
@pytest.mark.parametrize("stop", [3, 4, 6])
def test_a_step_sees_the_same_samples(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, before: int, after: int, stop: int
) -> None:
    def train(size: int, steps: int, resumed: bool) -> Shared:
        every = 100 if stop == 3 else stop  # written behind an epoch, or behind its last batch
        data, kept = Shared(size), Checkpoint(tmp_path, every, "val/score")
        trainer = trainer_for(
            tmp_path,
            [kept],
            max_steps=steps,
            accumulate_grad_batches=8 // size,
            limit_val_batches=0,
        )
        path = kept.last_model_path if resumed else None
        trainer.fit(Task(), data, ckpt_path=path, weights_only=True)
        assert trainer.global_step == steps
        return data

    straight = train(before, 14, False).seen[: 14 * 8]
    first = train(before, stop, False)
    with caplog.at_level(logging.WARNING):
        rest = train(after, 14, True)
    assert f"1 x {before} samples a batch before, 1 x {after} now" in caplog.text
    assert "not with the batches" not in caplog.text
    assert first.seen[: stop * 8] == straight[: stop * 8]
    # loaders may be a batch ahead at the end
    assert Counter(rest.seen[: (14 - stop) * 8]) == Counter(straight[stop * 8 :])
