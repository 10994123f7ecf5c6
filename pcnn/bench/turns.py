"""Turns of processes that measure on one device: they check side by side, and one of them times.

A lock file says who may work. A process holds it shared while it compiles and checks, and alone
while it times, so that times are taken when all others wait. On a machine of many cores several
figures are then measured in little more than the time of one, as most of it goes into checks.

The system gives a lock to one of those that want it, and a process that has just let it go is often
the quickest. So there is a second lock, the gate, which is held only while one waits for the first:
behind a process that waits to time, nobody begins to time or to check.
"""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path


class _Turn:
    """The lock of a process, and how often it was asked for within itself."""

    def __init__(self, lock: int, gate: int) -> None:
        self._lock, self._gate, self._depth = lock, gate, 0

    def wait(self, kind: int) -> None:
        """Let the lock go, and take it again as `fcntl.LOCK_SH` or `LOCK_EX`."""
        fcntl.flock(self._lock, fcntl.LOCK_UN)
        fcntl.flock(self._gate, fcntl.LOCK_EX)
        try:
            fcntl.flock(self._lock, kind)
        finally:
            fcntl.flock(self._gate, fcntl.LOCK_UN)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the lock alone; others wait, those that only check too."""
        if self._depth == 0:
            self.wait(fcntl.LOCK_EX)
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if self._depth == 0:
                self.wait(fcntl.LOCK_SH)


#: The turn of the measurements of this thread; ``None``: they wait for nobody.
_TURN: ContextVar[_Turn | None] = ContextVar("turn", default=None)


@contextlib.contextmanager
def taking_turns(file: Path | None) -> Iterator[None]:
    """Measure in turns with all processes that name the same file; without one, at any time.

    The file, and its gate beside it, are made where they are missing. A process that ends, however
    it does, gives its turn away.

    Raises:
        OSError: the file cannot be opened.
    """
    if file is None:
        yield
        return
    with file.open("a") as opened, file.with_name(f"{file.name}.gate").open("a") as gate:
        turn = _Turn(opened.fileno(), gate.fileno())
        turn.wait(fcntl.LOCK_SH)
        token = _TURN.set(turn)
        try:
            yield
        finally:
            _TURN.reset(token)


@contextlib.contextmanager
def measuring() -> Iterator[None]:
    """Wait for this process's turn; nothing to wait for without `taking_turns`."""
    turn = _TURN.get()
    if turn is None:
        yield
        return
    with turn.alone():
        yield
