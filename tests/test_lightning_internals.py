"""Lightning's private members do what `pcnn.lightning_internals` takes them for."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.loggers import CSVLogger

from pcnn import lightning_internals as internals
from tests.callbacks.tiny import Data, Task, trainer_for

#: Names of Lightning's objects, in the code that uses them.
OBJECTS = ("trainer", "loop", "val_loop", "epoch_loop", "fit_loop", "timer", "_logger_connector")


def test_no_other_file_uses_a_private_member() -> None:
    root = Path(internals.__file__).parent
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


class Seen(Callback):
    """Results of the functions at every batch."""

    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []

    def on_train_batch_start(self, trainer: Trainer, *rest: Any) -> None:
        assert internals.is_logged(trainer)

    def on_train_batch_end(self, trainer: Trainer, *rest: Any) -> None:
        asked = (
            *(internals.logged_step, internals.is_validation_due),
            *(internals.is_end_of_epoch, internals.is_last_batch),
        )
        self.rows.append((trainer.global_step, *(function(trainer) for function in asked)))
        internals.log_step(trainer)


@pytest.mark.filterwarnings("ignore")
def test_steps_validations_and_ends(tmp_path: Path) -> None:
    """6 batches an epoch, a validation every 4, two epochs."""
    seen = Seen()
    trainer = trainer_for(
        tmp_path,
        [seen],
        max_steps=-1,
        max_epochs=2,
        val_check_interval=4,
        check_val_every_n_epoch=None,
        log_every_n_steps=1,
        logger=CSVLogger(tmp_path, name="csv"),
        enable_checkpointing=False,
    )
    assert not internals.is_dry_run(trainer)
    trainer.fit(Task(), Data())
    assert [row[0] for row in seen.rows] == list(range(1, 13))
    assert [row[1] for row in seen.rows] == list(range(12))
    assert [row[0] for row in seen.rows if row[2]] == [4, 8, 12]
    assert [row[0] for row in seen.rows if row[3]] == [6, 12]
    assert [row[0] for row in seen.rows if row[4]] == [12]
    lines = (tmp_path / "csv/version_0/metrics.csv").read_text().splitlines()
    assert len(lines) == 1 + 2 * 12 + 3  # every step twice: by `log_step`, then by Lightning
    assert internals.logged_step(trainer) == trainer.fit_loop.epoch_loop._batches_that_stepped - 1
    internals.shift_logged_step(trainer, 2)
    assert trainer.fit_loop.epoch_loop._batches_that_stepped == 14


def test_the_loop_asks_no_rank_about_signals(tmp_path: Path) -> None:
    loop = trainer_for(tmp_path, [], max_steps=1).fit_loop.epoch_loop
    assert "self._broadcast_sigterm_tensor()" in inspect.getsource(type(loop).advance)
    internals.agree_by_callback(loop.trainer)
    loop._broadcast_sigterm_tensor()  # without a process group it would make a tensor and read it
    assert "_broadcast_sigterm_tensor" in vars(loop)
