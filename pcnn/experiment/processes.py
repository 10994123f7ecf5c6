"""What several processes of one job, and several jobs of one process, have to agree on."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch.distributed
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from lightning.pytorch.utilities import rank_zero_only
from omegaconf import open_dict, read_write

# by these a process knows its place among the ranks; Lightning sets them when it starts the others
PLACE = ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "LOCAL_RANK", "WORLD_SIZE")


def rank() -> int:
    """This process's rank, known before the trainer is."""
    return int(getattr(rank_zero_only, "rank", 0))


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
