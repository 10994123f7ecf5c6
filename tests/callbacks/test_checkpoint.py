"""Killed and resumed runs equal uninterrupted ones, bit for bit."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import torch

from pcnn.callbacks import Checkpoint, RngState
from pcnn.callbacks.checkpoint_io import AtomicCheckpointIO
from pcnn.checkpoints import load_config
from pcnn.checkpoints.checkpoint_file import write_whole
from tests.callbacks.tiny import (
    Data,
    Kill,
    Task,
    same_weights,
    train,
    train_and_die,
    trainer_for,
    validations,
    weights,
)
from tests.forking import require_fork

# 6 batches an epoch, 20 steps, last.ckpt every 4: checkpoints in mid-epoch and, at step 12, at the
# end of one
EPOCHS = {"max_steps": -1, "max_epochs": 4}
CASES = {
    "validation at every epoch's end": {},
    "validation inside the epoch": {"val_check_interval": 2},
    "validation between checkpoints": {"val_check_interval": 3},
    "validation across epochs": {"val_check_interval": 8, "check_val_every_n_epoch": None},
    "no validation": {"limit_val_batches": 0},
    "epochs counted, validation inside": {**EPOCHS, "val_check_interval": 4},
    "epochs counted, validation at the end": EPOCHS,
    "epochs counted, none": {**EPOCHS, "limit_val_batches": 0},
    "epochs counted, validation every second": {**EPOCHS, "check_val_every_n_epoch": 2},
    "epochs counted, checkpoint every step": {**EPOCHS, "every": 1, "val_check_interval": 2},
    "epochs counted, checkpoint at every end": {**EPOCHS, "every": 6},
    "accumulated gradients": {"accumulate_grad_batches": 2, "max_steps": 14},
    "checkpoint at every epoch's end": {"every": 6},
}


def logged_step(task: Task) -> int:
    return task.trainer.fit_loop.epoch_loop._batches_that_stepped


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
@pytest.mark.filterwarnings("ignore::lightning.pytorch.utilities.warnings.PossibleUserWarning")
def test_resumed_equals_uninterrupted(tmp_path: Path, case: dict) -> None:
    straight, broken = tmp_path / "straight", tmp_path / "broken"
    expected, reference = train(straight, **case)
    # die at an epoch's start, in mid-epoch, behind an epoch's end, and again in that epoch
    for batch in (6, 9, 13, 17):
        train_and_die(broken, Kill(at_batch=batch), **case)
    resumed, checkpoint = train(broken, **case)
    assert same_weights(resumed, expected)
    assert checkpoint.best_score == reference.best_score
    assert logged_step(resumed) == logged_step(expected)
    if case.get("limit_val_batches") != 0:
        assert validations(broken) == validations(straight)


@pytest.mark.filterwarnings("ignore::lightning.pytorch.utilities.warnings.PossibleUserWarning")
def test_killed_in_validation_repeats_it(tmp_path: Path) -> None:
    straight, broken = tmp_path / "straight", tmp_path / "broken"
    options = {"val_check_interval": 4, "check_val_every_n_epoch": None}
    expected, _ = train(straight, **options)
    train_and_die(broken, Kill(in_validation_at_step=8), **options)
    held = torch.load(broken / "last.ckpt", weights_only=True)
    assert held["global_step"] == 4  # the one of step 8 waits for its validation
    resumed, _ = train(broken, **options)
    assert validations(broken) == validations(straight)
    assert same_weights(resumed, expected)


@pytest.mark.filterwarnings("ignore::lightning.pytorch.utilities.warnings.PossibleUserWarning")
def test_workers_do_not_matter(tmp_path: Path) -> None:
    expected, _ = train(tmp_path / "alone", max_steps=10)
    train_and_die(tmp_path / "workers", Kill(at_batch=7), workers=2, max_steps=10)
    resumed, _ = train(tmp_path / "workers", workers=2, max_steps=10)
    assert same_weights(resumed, expected)


def test_the_seed_matters(tmp_path: Path) -> None:
    first, _ = train(tmp_path, max_steps=3)
    second, _ = train(tmp_path / "other", max_steps=3, seed=4)
    assert not torch.equal(weights(first)["net.0.weight"], weights(second)["net.0.weight"])


def test_files_load_with_weights_only_and_carry_the_config(tmp_path: Path) -> None:
    train(tmp_path, max_steps=6, every=4)
    assert sorted(p.name for p in tmp_path.glob("*.ckpt*")) == ["best.ckpt", "last.ckpt"]
    for name in ("last.ckpt", "best.ckpt"):
        held = torch.load(tmp_path / name, weights_only=True)
        assert held["pcnn_config"] == {"model": {"width": 0.5}}
        assert load_config(tmp_path / name) == {"model": {"width": 0.5}}
        state = held["callbacks"]["RngState"]
        assert state["seed"] == 3
        assert all(isinstance(state[k], torch.Tensor) for k in ("python", "numpy", "torch"))
    assert torch.load(tmp_path / "last.ckpt", weights_only=True)["global_step"] == 6


def test_best_is_the_best(tmp_path: Path) -> None:
    _, checkpoint = train(tmp_path, max_steps=20, val_check_interval=2)
    scores = validations(tmp_path)
    step = max(scores, key=scores.__getitem__)
    held = torch.load(checkpoint.best_model_path, weights_only=True)
    assert held["global_step"] == step == checkpoint.best_step
    assert checkpoint.best_score == scores[step]


def test_lower_is_better_and_nan_never_is(tmp_path: Path) -> None:
    class Scripted(Task):
        scores = iter([5.0, float("nan"), 3.0, 4.0])

        def validation_step(self, batch: torch.Tensor, batch_idx: int) -> None:
            self.log("val/score", next(self.scores), batch_size=3)

    checkpoint = Checkpoint(tmp_path, 100, "val/score", mode="min")
    trainer = trainer_for(
        tmp_path,
        [checkpoint],
        max_steps=8,
        val_check_interval=2,
        num_sanity_val_steps=0,
    )
    trainer.fit(Scripted(), Data())
    assert (checkpoint.best_score, checkpoint.best_step) == (3.0, 6)


def test_trainer_finds_the_best_by_name(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path, 2, "val/score")
    trainer = trainer_for(tmp_path, [checkpoint], max_steps=2, val_check_interval=2)
    trainer.fit(Task(), Data())
    assert len(trainer.callbacks) == 1, "Lightning added a checkpoint callback of its own"
    assert checkpoint.best_model_path == str(tmp_path / "best.ckpt")
    trainer.validate(Task(), Data(), ckpt_path="best", weights_only=True)


def test_missing_monitor_names_what_was_logged(tmp_path: Path) -> None:
    trainer = trainer_for(tmp_path, [Checkpoint(tmp_path, 2, "val/nonsense")], max_steps=6)
    with pytest.raises(ValueError, match=r"'val/nonsense'.*val/score"):
        trainer.fit(Task(), Data())


@pytest.mark.parametrize(
    ("config", "where"),
    [
        ({"a": {"b": Path("x")}}, "config.a.b"),
        ({"a": [1, (2,)]}, r"config.a\[1\]"),
        ({(1, 2): 2}, "keys"),
    ],
)
def test_config_that_would_not_load_is_refused(tmp_path: Path, config: dict, where: str) -> None:
    trainer = trainer_for(tmp_path, [Checkpoint(tmp_path, 2, "val/score", config=config)])
    with pytest.raises(TypeError, match=where):
        trainer.fit(Task(), Data())


def test_bad_arguments_raise(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least 1 step"):
        Checkpoint(tmp_path, 0)
    with pytest.raises(ValueError, match="'max' or 'min'"):
        Checkpoint(tmp_path, 1, mode="best")  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError, match=r"none\.ckpt"):
        load_config(tmp_path / "none.ckpt")
    write_whole({"state_dict": {}}, tmp_path / "other.ckpt")
    with pytest.raises(ValueError, match="pcnn_config"):
        load_config(tmp_path / "other.ckpt")


def test_fast_dev_run_writes_nothing(tmp_path: Path) -> None:
    trainer = trainer_for(tmp_path, [Checkpoint(tmp_path, 1, "val/score")], fast_dev_run=True)
    trainer.fit(Task(), Data())
    assert not list(tmp_path.glob("*.ckpt"))


class Bomb:
    """Kills the process when it is being pickled, that is in the middle of a write."""

    def __reduce__(self) -> tuple:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("survived SIGKILL")


def test_kill_in_mid_write_keeps_the_previous_file(tmp_path: Path) -> None:
    path = tmp_path / "last.ckpt"
    write_whole({"step": 1}, path)
    require_fork()
    child = os.fork()
    if child == 0:
        try:
            write_whole({"step": 2, "big": torch.zeros(10_000), "bomb": Bomb()}, path)
        finally:
            os._exit(1)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    assert torch.load(path, weights_only=True) == {"step": 1}
    assert len(list(tmp_path.glob(".last.ckpt.*.part"))) == 1
    # the next run clears the remains
    train(tmp_path / "other", max_steps=1)
    checkpoint = Checkpoint(tmp_path, 2, "val/score")
    trainer_for(tmp_path, [checkpoint], max_steps=1).fit(Task(), Data())
    assert not list(tmp_path.glob(".*.part"))


def test_failed_write_keeps_the_previous_file_and_leaves_no_remains(tmp_path: Path) -> None:
    path = tmp_path / "last.ckpt"
    write_whole({"step": 1}, path)
    with pytest.raises((AttributeError, TypeError)):
        write_whole({"unpicklable": lambda: None}, path)
    assert torch.load(path, weights_only=True) == {"step": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["last.ckpt"]
    with pytest.raises(TypeError, match="storage_options"):
        AtomicCheckpointIO().save_checkpoint({}, path, storage_options={})


def test_seed_is_drawn_when_none_is_given_and_travels(tmp_path: Path) -> None:
    rng = RngState()
    checkpoint = Checkpoint(tmp_path, 2, "val/score")
    trainer_for(tmp_path, [rng, checkpoint], max_steps=2).fit(Task(), Data())
    assert isinstance(rng.seed, int)
    again = RngState()
    trainer = trainer_for(tmp_path, [again, Checkpoint(tmp_path, 2, "val/score")], max_steps=3)
    trainer.fit(Task(), Data(), ckpt_path=tmp_path / "last.ckpt", weights_only=True)
    assert again.seed == rng.seed


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore::lightning.pytorch.utilities.warnings.PossibleUserWarning")
def test_resumed_equals_uninterrupted_on_a_gpu(tmp_path: Path) -> None:
    options = {"accelerator": "gpu", "devices": 1, "val_check_interval": 4}
    straight, _ = train(tmp_path / "straight", **options)
    train(tmp_path / "broken", **options, max_steps=9)
    resumed, _ = train(tmp_path / "broken", **options)
    held = torch.load(tmp_path / "broken" / "last.ckpt", weights_only=True)
    assert len(held["callbacks"]["RngState"]["cuda"]) == torch.cuda.device_count()
    assert same_weights(resumed, straight)
