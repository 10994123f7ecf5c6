"""News that every rank of a training tells the others, beside its collectives."""

from __future__ import annotations

import json
import os
import socket
import time
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path

from lightning.pytorch.strategies import Strategy
from torch.distributed import TCPStore  # type: ignore[attr-defined]  # it is public

#: Words for what a rank does that never come to an end by themselves.
RUNS, DONE = "runs", "done"


@dataclass
class Standing:
    """Where a rank stands."""

    rank: int  # of the process
    host: str  # name of its machine
    pid: int  # its process
    state: str = RUNS  # RUNS; DONE when it has left the training as planned
    beat: int = 0  # counts up while the process lives
    steps: int = 0  # batches it has begun
    doing: str = "starts"  # words for what it does
    since: float = 0.0  # seconds that it has been doing this
    error: str = ""  # text of the error that ended it
    stack: str = ""  # where its main thread stands, once it was asked for

    @property
    def name(self) -> str:
        """The rank and its process, in words."""
        return f"rank {self.rank} (process {self.pid} on {self.host})"


class RankBoard:
    """A standing for each rank, in the memory of the first one.

    Threads ask it while the main threads wait in collectives, so it has connections of its own.
    """

    def __init__(self, strategy: Strategy) -> None:
        self.rank, self.world = int(strategy.global_rank), int(strategy.world_size)  # type: ignore[attr-defined]
        self.mine = Standing(self.rank, socket.gethostname(), os.getpid())
        address: str = os.environ.get("MASTER_ADDR", "127.0.0.1")
        self._held: TCPStore | None = None  # the memory itself ends with this object
        port = 0
        if self.rank == 0:
            self._held = _connect(address, 0, True)
            port = self._held.port
        port = strategy.broadcast(port)
        self._store = _connect(address, port, False)
        self.post()
        strategy.barrier("board")

    def post(self) -> None:
        """Tell where this rank stands."""
        self.mine.beat += 1
        self._store.set(f"rank/{self.rank}", json.dumps(asdict(self.mine)))

    def read(self) -> list[Standing]:
        """Where all ranks stand."""
        found = self._store.multi_get([f"rank/{rank}" for rank in range(self.world)])
        return [Standing(**json.loads(one)) for one in found]


def _connect(address: str, port: int, holds: bool) -> TCPStore:
    limit = timedelta(seconds=60)
    return TCPStore(address, port, is_master=holds, wait_for_workers=False, timeout=limit)


def is_gone(one: Standing) -> bool:
    """True where the process of a rank of this machine has ended."""
    if one.host != socket.gethostname():
        return False
    try:
        state = Path(f"/proc/{one.pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return Path("/proc/self").exists()  # no such folder tells of no process
    except OSError:
        return False
    return state in "ZX"


class Beats:
    """Ranks whose beats have stopped, as those of another machine do when that is lost."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._last: dict[int, tuple[int, float]] = {}

    def silent(self, one: Standing) -> bool:
        """True where the beat of a rank has been the same for longer than the limit."""
        now = time.monotonic()
        beat, seen = self._last.get(one.rank, (-1, now))
        if beat != one.beat:
            self._last[one.rank] = one.beat, now
            return False
        return now - seen > self._limit
