"""Lightning's private members do what `pcnn.callbacks` takes them for."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import lightning as L
import torch
from torch import Tensor

from pcnn.callbacks import lightning_internals as internals
from tests.callbacks.tiny import Data, Task, trainer_for

#: Names of Lightning's objects, in the code that uses them.
OBJECTS = ("trainer", "loop", "val_loop", "epoch_loop", "fit_loop", "timer", "_logger_connector")


def test_no_other_file_uses_a_private_member() -> None:
    root = Path(internals.__file__).parents[1]
    found = set()
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr.startswith("_"):
                owner = node.value
                name = getattr(owner, "attr", getattr(owner, "id", ""))
                if name in OBJECTS and not node.attr.startswith("__"):
                    found.add(path.name)
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lightning"):
                found |= {path.name for each in node.names if each.name.startswith("_")}
    assert found == {"lightning_internals.py"}


def test_the_loop_asks_no_rank_about_signals(tmp_path: Path) -> None:
    loop = trainer_for(tmp_path, [], max_steps=1).fit_loop.epoch_loop
    assert "self._broadcast_sigterm_tensor()" in inspect.getsource(type(loop).advance)
    internals.agree_by_callback(loop.trainer)
    loop._broadcast_sigterm_tensor()  # without a process group it would make a tensor and read it
    assert "_broadcast_sigterm_tensor" in vars(loop)


class Twice(Task):
    """Logs the loss again, quickly."""

    quick = 0

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        loss = super().training_step(batch, batch_idx)
        if internals.log_again(self.trainer, "train/quick", loss.detach()):
            self.quick += 1
        else:
            self.log("train/quick", loss.detach())
        return loss


class Seen(L.Callback):
    def on_train_batch_end(self, trainer: L.Trainer, *_: object) -> None:  # type: ignore[override]
        figures = trainer.callback_metrics
        assert torch.equal(figures["train/quick"], figures["train/loss"])
        assert set(trainer.logged_metrics) >= {"train/quick", "train/loss"}


def test_figures_are_logged_again_as_the_first_time(tmp_path: Path) -> None:
    task = Twice()
    options = {"max_epochs": 3, "max_steps": -1, "val_check_interval": 2, "log_every_n_steps": 1}
    trainer = trainer_for(tmp_path, [Seen()], **options)
    trainer.fit(task, Data())
    assert task.quick == trainer.global_step - 3  # an epoch begins with the slow way
    assert trainer.global_step == 18
