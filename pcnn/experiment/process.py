"""The process of a run: its folder's lock, its ranks, signals that stop it, full disks."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch.distributed
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from lightning.pytorch.utilities import rank_zero_only
from omegaconf import open_dict, read_write

from pcnn.callbacks import Stopped
from pcnn.callbacks.stop import NAMES, PREEMPTION, StopSignals, stop_signals
from pcnn.errors import ConfigError
from pcnn.experiment import run_folder
from pcnn.experiment.resume import resume_command
from pcnn.messages import say

# by these a process knows its place among the ranks; Lightning sets them when it starts the others
PLACE = ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "LOCAL_RANK", "WORLD_SIZE")


def rank() -> int:
    """This process's rank, known before the trainer is."""
    return int(getattr(rank_zero_only, "rank", 0))


def check_one_folder() -> None:
    """Check that ranks of a launcher find one run folder, and a restart finds it again."""
    hydra = HydraConfig.get()
    by_slurm = int(os.environ.get("SLURM_NTASKS", "1")) > 1 and "SLURM_PROCID" in os.environ
    by_torchrun = int(os.environ.get("WORLD_SIZE", "1")) > 1 and "TORCHELASTIC_RUN_ID" in os.environ
    named = any(one.startswith("hydra.run.dir=") for one in hydra.overrides.hydra)
    if (by_slurm or by_torchrun) and hydra.mode != RunMode.MULTIRUN and not named:
        raise ConfigError(
            "hydra.run.dir",
            "ranks that a launcher starts need one folder: hydra.run.dir=logs/NAME resume=auto",
        )


@contextmanager
def started(folder: Path, trains: bool) -> Iterator[StopSignals]:
    """Everything that surrounds a run."""
    with locked(folder), stoppable(folder, trains) as stop, one_job():
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
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def tell_other_ranks(folder: Path) -> None:
    """Let processes that Lightning starts for the other ranks find this very run."""
    hydra = HydraConfig.get()
    if hydra.mode != RunMode.MULTIRUN:
        return
    sys.argv[1:] = list(hydra.overrides.task)
    with read_write(hydra), open_dict(hydra):  # type: ignore[arg-type]
        hydra.run.dir = str(folder)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a run folder, on rank 0 for all ranks; the file stays there."""
    if rank() != 0:
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / run_folder.LOCK).open("a+") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:  # of another kind on a file system without locks
            if error.errno in (errno.EACCES, errno.EAGAIN):
                file.seek(0)
                owner = file.read(200).strip() or "another process"
                raise ConfigError("hydra.run.dir", f"{folder} is in use by {owner}") from error
        file.truncate(0)
        print(f"process {os.getpid()} on {socket.gethostname()}", file=file, flush=True)
        yield


@contextmanager
def stoppable(folder: Path, trains: bool) -> Iterator[StopSignals]:
    """Let Ctrl-C, SIGTERM and SIGUSR1 end what is inside, with a message instead of a traceback."""
    try:
        with stop_signals(speaks=rank() == 0) as stop:
            yield stop
    except Stopped as stopped:
        if rank() != 0:
            raise SystemExit(0) from None  # Lightning kills all ranks when one of them fails
        kept = (folder / run_folder.SO_FAR).exists()
        way = f"The same command {'goes on' if kept else 'begins again'}."
        if trains and (folder / run_folder.CONFIG).is_file():
            way = f"To go on:\n  {resume_command(folder)}"
        say(f"{NAMES[stopped.signum]}: stopped. {way}", error=True)
        if stopped.signum in PREEMPTION:
            handler = signal.getsignal(stopped.signum)
            if callable(handler):  # of a launcher, which submits the job again
                handler(stopped.signum, None)
        raise
