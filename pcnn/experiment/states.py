"""The two states that a training leaves: the best on validation, and the last one.

The best state was chosen by the figures of the validation, so the figures it has there are higher
than those it would have elsewhere. The last state was not chosen: its figures stand beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import lightning as L
from omegaconf import DictConfig
from rich.table import Table

from pcnn.callbacks import read_checkpoint
from pcnn.console import Console
from pcnn.experiment.weights import read_config

# keys of a data set that say which clouds validate
_VALIDATION = ("name", "root", "source", "val_sequences", "val_areas", "test_areas", "val_fraction")


@dataclass(frozen=True)
class LastState:
    """The last state of a training.

    Args:
        checkpoint: its file.
        steps: optimiser steps behind it.
        metrics: its figures, by the names that those of the best state have.
    """

    checkpoint: str
    steps: int
    metrics: dict[str, float]


def last_state(
    trainer: L.Trainer,
    steps: int,
    evaluate: Callable[[str, str], dict[str, float]],
    views: bool,
    test: bool,
) -> LastState | None:
    """Figures of `last.ckpt`; None where it holds the state that is evaluated in any case.

    The last state is validated at the end of a training: it is evaluated here only where that did
    not happen.

    Args:
        trainer: at the end of its training.
        steps: optimiser steps behind the state that is evaluated.
        evaluate: figures of a checkpoint on a split.
        views: evaluations sum views, which validations of a training do not.
        test: evaluate it on the test split too.
    """
    kept: Any = trainer.checkpoint_callback
    path = getattr(kept, "last_model_path", "")
    if not path or steps == trainer.global_step:
        return None
    if not views and getattr(kept, "validated_step", None) == trainer.global_step:
        metrics = {name: float(value) for name, value in kept.figures.items()}
    else:
        metrics = evaluate(path, "val")
    if test:
        metrics |= evaluate(path, "test")
    return LastState(path, trainer.global_step, metrics)


def was_chosen_here(cfg: DictConfig, checkpoint: str) -> bool:
    """Whether a checkpoint is the best state on the clouds that `cfg` validates on."""
    content = read_checkpoint(checkpoint)
    states = [
        state for state in content.get("callbacks", {}).values() if isinstance(state, Mapping)
    ]
    if not any(state.get("best_step") == content["global_step"] for state in states):
        return False
    saved: Mapping[str, Any] = read_config(checkpoint)["dataset"]
    return all(cfg.dataset.get(key) == saved.get(key) for key in _VALIDATION)


def facts_of(chosen: bool, tests_on_validation: bool, last: LastState | None) -> dict[str, Any]:
    """Entries of metrics.json that say what the figures of the best state are."""
    facts: dict[str, Any] = {
        "best_on_validation": chosen,
        "test_split": "validation" if tests_on_validation else "own",
    }
    if last is not None:
        facts["last"] = asdict(last)
    return facts


def say_states(console: Console, steps: int, metrics: Mapping[str, float], last: LastState) -> None:
    """Print the figures of both states side by side, without those of single classes."""
    table = Table(title="Figures of both states", title_justify="left")
    table.add_column("")
    table.add_column(f"best on validation\nbest.ckpt, step {steps}", justify="right")
    table.add_column(f"last\nlast.ckpt, step {last.steps}", justify="right")
    for name, value in metrics.items():
        if name in last.metrics and name.replace("/tta", "").count("/") == 1:
            table.add_row(name, f"{value:.4f}", f"{last.metrics[name]:.4f}")
    console.print(table)


def say_chosen(console: Console, checkpoint: str) -> None:
    """Print that the tested state was chosen on the very clouds that test it."""
    console.print(
        f"{checkpoint} was chosen on these clouds: its figures are the best on validation.",
        soft_wrap=True,
        highlight=False,
    )
    last = Path(checkpoint).with_name("last.ckpt")
    if last.is_file() and last != Path(checkpoint):
        console.print(
            f"the last state: python eval.py ckpt_path={last}", soft_wrap=True, highlight=False
        )
