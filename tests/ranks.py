"""Two processes as the two ranks of a training on the CPU, as a launcher starts them."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import torch
from torch import multiprocessing as mp

from tests.forking import require_fork

#: Options of a trainer whose ranks are there already.
OPTIONS: dict[str, Any] = {"strategy": "ddp", "devices": 2, "use_distributed_sampler": False}


def on_two_ranks(function: Any, folder: Path) -> None:
    """Call a function with rank and folder in two processes."""
    require_fork()
    mp.start_processes(_run, (function, folder, free_port()), nprocs=2, start_method="fork")


def free_port() -> int:
    """A port that no process listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _run(rank: int, function: Any, folder: Path, port: int) -> None:
    torch.set_num_threads(1)
    names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2}
    names |= {"GROUP_RANK": 0, "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in names.items()})
    os.environ.update(MASTER_ADDR="127.0.0.1", TORCHELASTIC_RUN_ID="none")
    function(rank, folder)
