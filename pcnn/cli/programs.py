"""`pcnn train` and `pcnn eval`: train.py and eval.py, wherever the package is installed."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

import pcnn.programs

Words = Annotated[
    list[str] | None,
    typer.Argument(help="GROUP=OPTION and KEY=VALUE; --help lists the groups.", metavar="WORDS"),
]


def train(words: Words = None) -> None:
    """Train a network: pcnn train model=minkunet dataset=kitti."""
    _run("train", words or [])


def evaluate(words: Words = None) -> None:
    """Evaluate a checkpoint: pcnn eval ckpt_path=FILE."""
    _run("eval", words or [])


def _run(name: str, words: list[str]) -> None:
    """Run a program of the package as if its file had been started, which `ddp` does again."""
    sys.argv = [str(Path(pcnn.programs.__file__).with_name(f"{name}.py")), *words]
    import_module(f"pcnn.programs.{name}").run()
