"""An optimiser whose state is spread over ranks takes the steps of one that is not, and resumes."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pcnn.callbacks import Checkpoint
from pcnn.errors import UserError
from pcnn.tasks.network_task import NetworkTask, sharded
from pcnn.tasks.schedules import constant
from tests.callbacks.tiny import trainer_for
from tests.ranks import OPTIONS, alike_on_two_ranks
from tests.tasks.quiet import loader


class Small(NetworkTask):
    def __init__(self, shard: bool) -> None:
        torch.manual_seed(3)
        net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
        super().__init__(net, partial(torch.optim.AdamW, lr=0.1), constant)
        self.shard_optimizer = shard

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        self.log_step(1, 5)
        return self.net(batch).square().mean()


def on_rank(rank: int, folder: Path) -> None:
    batches = list(torch.randn(6, 5, 3, generator=torch.Generator().manual_seed(rank)))

    def weights(shard: bool, steps: int, kept: Checkpoint | None = None) -> list[float]:
        task, callbacks = Small(shard), [] if kept is None else [kept]
        settings = {**OPTIONS, "max_steps": steps, "enable_checkpointing": kept is not None}
        trainer = trainer_for(folder, callbacks, **settings)
        path = kept.last_model_path or None if kept is not None else None
        given = batches[3:] if path else batches
        trainer.fit(task, loader(given), ckpt_path=path, weights_only=True)
        if shard:
            states: Any = trainer.optimizers[0].optim.state  # type: ignore[attr-defined]
            assert 0 < len(states) < 4  # of four parameters
        return torch.cat([one.detach().reshape(-1) for one in task.parameters()]).tolist()

    found = [weights(False, 6), weights(True, 6)]
    weights(True, 3, Checkpoint(folder, 3, "val/score"))
    found.append(weights(True, 6, Checkpoint(folder, 100, "val/score")))
    (folder / f"{rank}.json").write_text(json.dumps(found))


@pytest.mark.filterwarnings("ignore")
def test_steps_are_those_of_a_whole_optimiser(tmp_path: Path) -> None:
    whole, shard, resumed = map(torch.tensor, alike_on_two_ranks(on_rank, tmp_path))
    torch.testing.assert_close(shard, whole)
    torch.testing.assert_close(resumed, whole)


def test_other_makers_are_refused() -> None:
    with pytest.raises(UserError, match="needs the class of an optimiser"):
        sharded(lambda groups: torch.optim.SGD(groups), [])
