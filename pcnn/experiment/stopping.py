"""What a run that Ctrl-C or SIGTERM has ended says, and its exit code."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pcnn.callbacks.checkpoint import Stopped
from pcnn.callbacks.stop import NAMES, StopSignals, stop_signals
from pcnn.errors import StorageError, storage_cause
from pcnn.escaping import say
from pcnn.experiment import run_folder
from pcnn.experiment.errors import ConfigError
from pcnn.experiment.processes import rank
from pcnn.experiment.weights import steps_of


@contextmanager
def stoppable(message: Callable[[str], str]) -> Iterator[StopSignals]:
    """Let Ctrl-C and SIGTERM end what is inside, with a message in the place of a traceback.

    Args:
        message: what is printed, of the signal's name.

    Raises:
        Stopped: a signal came; ends the process with its exit code.
    """
    try:
        with stop_signals(speaks=rank() == 0) as stop:
            yield stop
    except Stopped as stopped:
        if rank() != 0:
            raise SystemExit(0) from None  # Lightning kills all ranks when one of them fails
        say(message(NAMES[stopped.signum]), error=True)
        raise


def how_to_go_on(folder: Path, allowed: Sequence[str], name: str) -> str:
    """The command that goes on with a training, and where that will be.

    Args:
        folder: run folder; it has no config.yaml when the run had not begun.
        allowed: packages of `allow_targets`, which no file keeps.
        name: of the signal.
    """
    if not (folder / run_folder.CONFIG).is_file():
        return f"{name}: stopped before the run began. The same command starts it again."
    command = f"  {run_folder.resume_command(folder, allowed)}"
    last = folder / run_folder.LAST
    if not last.is_file():
        return f"{name}: stopped before the first step was done. To start there again:\n{command}"
    total = run_folder.load_config(folder).trainer.max_steps
    step = f"step {steps_of(last)}" + (f" of {total}" if total and total > 0 else "")
    return f"{name}: stopped. {last} holds {step}. To go on:\n{command}"


@contextmanager
def told_full_disk(folder: Path) -> Iterator[None]:
    """Tell a full disk as such, with what the run folder holds by then.

    Raises:
        ConfigError: in place of any error that a full disk, a quota or a read-only one caused.
    """
    try:
        yield
    except Exception as error:
        cause = storage_cause(error)
        if cause is None:
            raise
        told = str(error) if isinstance(error, StorageError) else f"{folder.resolve()}: {cause}"
        raise ConfigError(f"{told}.\n{kept(folder)}") from error


def kept(folder: Path) -> str:
    """What a run folder holds that the run can go on from."""
    last = folder / run_folder.LAST
    if not last.is_file():
        return f"{folder} holds no last.ckpt. Free space, then give the same command again."
    command = f"python train.py {run_folder.argument('resume', folder)}"
    return f"kept: {last}, step {steps_of(last)}. Free space, then: {command}"


def nothing_written(name: str) -> str:
    """That an evaluation has to be done again."""
    return f"{name}: stopped; no figures were written. The same command evaluates again."
