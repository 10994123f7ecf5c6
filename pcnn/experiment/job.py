"""Surroundings of a run: its folder's lock, its ranks, signals that stop it, full disks."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from lightning.pytorch.utilities import rank_zero_only
from omegaconf import open_dict, read_write

from pcnn.callbacks import Stopped
from pcnn.callbacks.stop import NAMES, PREEMPTION, StopSignals, stop_signals
from pcnn.checkpoints import RunCheckpoint
from pcnn.config.values import selected
from pcnn.console import Console
from pcnn.errors import ConfigError, RunWarning, StorageError, first_line, storage_cause
from pcnn.experiment import run_folder
from pcnn.experiment.resume import resume_command
from pcnn.messages import say

# by these a process knows its place among the ranks; Lightning sets them when it starts the others
PLACE = ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "LOCAL_RANK", "WORLD_SIZE")


def rank() -> int:
    """This process's rank, known before the trainer is."""
    return int(getattr(rank_zero_only, "rank", 0))


def check_one_folder() -> None:
    """Check that ranks which a launcher started find one run folder,
    and a restart finds it again.
    """
    hydra = HydraConfig.get()
    by_slurm = int(os.environ.get("SLURM_NTASKS", "1")) > 1 and "SLURM_PROCID" in os.environ
    by_torchrun = int(os.environ.get("WORLD_SIZE", "1")) > 1 and "TORCHELASTIC_RUN_ID" in os.environ
    named = any(one.startswith("hydra.run.dir=") for one in hydra.overrides.hydra)
    if (by_slurm or by_torchrun) and hydra.mode != RunMode.MULTIRUN and not named:
        raise ConfigError(
            "hydra.run.dir",
            "ranks that a launcher starts need the name of one folder: hydra.run.dir=logs/NAME "
            "resume=auto, which goes on there after a restart",
        )


@contextmanager
def started(folder: Path, message: Callable[[str], str]) -> Iterator[StopSignals]:
    """Everything that surrounds a run."""
    with (
        locked(folder),
        told(folder),
        stoppable(message) as stop,
        one_job(),
        repeated_warnings(Console(quiet=rank() != 0)),
    ):
        yield stop


@contextmanager
def one_job() -> Iterator[None]:
    """Leave the process as it was found: the next job of a sweep starts ranks of its own."""
    before = {name: os.environ.get(name) for name in PLACE}
    try:
        yield
    finally:
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def tell_other_ranks(folder: Path) -> None:
    """Let processes that Lightning starts for the other ranks find this very run.

    Lightning repeats this process's command line and adds `hydra.run.dir`. In a sweep the command
    line holds all jobs, and `hydra.run.dir` is not where this job lies: replace both by the job's.
    """
    hydra = HydraConfig.get()
    if hydra.mode != RunMode.MULTIRUN:
        return
    sys.argv[1:] = list(hydra.overrides.task)
    with read_write(hydra), open_dict(hydra):  # type: ignore[arg-type]
        hydra.run.dir = str(folder)


log = logging.getLogger(__name__)

LOCK = ".lock"
#: Settings that need less memory, the cheapest first.
LEVERS = (
    "a smaller dataset.batch_size with global_batch_size (the same steps), trainer.precision="
    "16-mixed, activation_checkpointing=[0] (activations of the finest level are computed again), "
    "a smaller dataset.crop or dataset.point_max"
)
MAX_WARNINGS = 20  # that are repeated at the end


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a run folder.

    The kernel holds it for this process, and takes it back when the process ends in any way: a
    killed run leaves a file, never a lock. Processes that it forked, as workers of a loader are, do
    not hold it, so they cannot keep it. Rank 0 holds it for the ranks of one run. On a network file
    system it works across machines where the system has locks; where it has none, a warning says
    so.
    """
    if rank() != 0:
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / LOCK
    handle = _acquired(path)
    try:
        yield
    finally:
        if handle is not None:
            path.unlink(missing_ok=True)  # while it is held: see _acquired
            os.close(handle)


def _acquired(path: Path) -> int | None:
    """An open lock file that this process holds; None where the file system has no locks."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.pread(handle, 200, 0).decode(errors="replace").strip()
            os.close(handle)
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise ConfigError(
                    "hydra.run.dir", f"{path.parent} is in use by {owner or 'another process'}"
                ) from error
            log.warning(
                "%s: this file system has no locks (%s); give this folder to one run at a time",
                path.parent,
                os.strerror(error.errno or 0),
            )
            return None
        # its owner may have removed the file between our open and our lock
        if path.exists() and os.path.samestat(os.fstat(handle), path.stat()):
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
            return handle
        os.close(handle)


@contextmanager
def stoppable(message: Callable[[str], str]) -> Iterator[StopSignals]:
    """Let Ctrl-C, SIGTERM and SIGUSR1 end what is inside, with a message instead of a traceback."""
    try:
        with stop_signals(speaks=rank() == 0) as stop:
            yield stop
    except Stopped as stopped:
        if rank() != 0:
            raise SystemExit(0) from None  # Lightning kills all ranks when one of them fails
        say(message(NAMES[stopped.signum]), error=True)
        if stopped.signum in PREEMPTION:
            submit_again(stopped.signum)
        raise


def submit_again(signum: int) -> None:
    """Ask the scheduler to start this job once more,
    where it said that it takes the machine away.
    """
    handler = signal.getsignal(signum)
    if callable(handler):
        handler(signum, None)
    job = os.environ.get("SLURM_JOB_ID")
    if job is None or shutil.which("scontrol") is None:
        return
    if "SLURM_ARRAY_JOB_ID" in os.environ:
        job = f"{os.environ['SLURM_ARRAY_JOB_ID']}_{os.environ['SLURM_ARRAY_TASK_ID']}"
    done = subprocess.run(["scontrol", "requeue", job], capture_output=True, text=True, check=False)
    said = "submitted again" if done.returncode == 0 else done.stderr.strip()
    say(f"SLURM job {job}: {said}", error=True)


def how_to_go_on(folder: Path, name: str) -> str:
    """The command that goes on with a training, and where that will be."""
    if not (folder / run_folder.CONFIG).is_file():
        return f"{name}: stopped before the run began. The same command starts it again."
    command = f"  {resume_command(folder)}"
    last = folder / run_folder.LAST
    if not last.is_file():
        return f"{name}: stopped before the first step was done. To start there again:\n{command}"
    total = selected(run_folder.load_config(folder), "trainer.max_steps")
    step = f"step {RunCheckpoint.read(last).steps}" + (
        f" of {total}" if total and total > 0 else ""
    )
    return f"{name}: stopped. {last} holds {step}. To go on:\n{command}"


@contextmanager
def told(folder: Path) -> Iterator[None]:
    """Tell of a full disk, a lost worker or a full device, with what the run folder holds."""
    try:
        yield
    except Exception as error:
        cause = storage_cause(error)
        if cause is not None:
            text = str(error) if isinstance(error, StorageError) else f"{folder.resolve()}: {cause}"
            raise StorageError(f"{text}.\n{kept(folder)}") from error
        if isinstance(error, torch.OutOfMemoryError):
            key = "dataset.batch_size"
            said = f"the memory of the device is full: {first_line(error)}\npossible: {LEVERS}"
        elif isinstance(error, RuntimeError) and "DataLoader worker" in str(error):
            key = "dataset.num_workers"
            said = (
                f"a process that loads data was lost: {first_line(error)}. Where memory ran out, "
                "fewer of them or a smaller dataset.crop; where /dev/shm is full, more of it"
            )
        else:
            raise
        raise ConfigError(key, f"{said}\n{kept(folder, 'Then')}") from error


def kept(folder: Path, then: str = "Free space, then") -> str:
    """The checkpoint of a run folder from which the run can go on, in words."""
    last = folder / run_folder.LAST
    if not last.is_file():
        return f"{folder} holds no last.ckpt. {then} give the same command again."
    command = resume_command(folder)
    return f"kept: {last}, step {RunCheckpoint.read(last).steps}. {then}: {command}"


def nothing_written(name: str) -> str:
    """That an evaluation has to be done again."""
    return f"{name}: stopped; no figures were written. The same command evaluates again."


@contextmanager
def repeated_warnings(console: Console) -> Iterator[None]:
    """Print once more, at the end of the block, what it warned of that concerns the figures.

    These are every `RunWarning` and the warnings that the package logs, except those of simulated
    data, which are repeated in any case. Processes that the block forks, as workers of a loader
    are, write to the same file.
    """
    show = warnings.showwarning
    with tempfile.TemporaryFile("a+", encoding="utf-8") as file:

        def keep(text: str) -> None:
            file.write(json.dumps(text) + "\n")
            file.flush()  # a process that is forked inherits no unwritten lines

        def shown(message: Warning | str, category: type[Warning], *rest: Any) -> None:
            if issubclass(category, RunWarning):
                keep(str(message))
            show(message, category, *rest)

        handler = logging.Handler(logging.WARNING)
        handler.emit = lambda record: keep(record.getMessage())  # type: ignore[method-assign]
        log = logging.getLogger("pcnn")
        log.addHandler(handler)
        warnings.showwarning = shown  # type: ignore[assignment]
        try:
            yield
        finally:
            warnings.showwarning = show
            log.removeHandler(handler)
        file.seek(0)
        lines = [line for line in dict.fromkeys(map(json.loads, file)) if "SIMULATED" not in line]
    if lines:
        console.print("warnings of this run:", style="bold yellow")
    for line in lines[:MAX_WARNINGS]:
        console.say(f"  {line}")
    if len(lines) > MAX_WARNINGS:
        console.say(f"  and {len(lines) - MAX_WARNINGS} more above")
