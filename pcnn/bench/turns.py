"""Turns of processes that measure on one device: they check side by side, and one of them times.

A lock file says who may work. A process holds it shared while it compiles and checks, and alone
while it times, so that times are taken when all others wait. On a machine of many cores several
figures are then measured in little more than the time of one, as most of it goes into checks.
"""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path


class _Turn:
    """The lock of a process, and how often it was asked for within itself."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._depth = descriptor, 0

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the lock alone; others wait, those that only check too."""
        if self._depth == 0:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if self._depth == 0:
                fcntl.flock(self._descriptor, fcntl.LOCK_SH)


#: The turn of the measurements of this thread; ``None``: they wait for nobody.
_TURN: ContextVar[_Turn | None] = ContextVar("turn", default=None)


@contextlib.contextmanager
def taking_turns(file: Path | None) -> Iterator[None]:
    """Measure in turns with all processes that name the same file; without one, at any time.

    The file is made where it is missing. A process that ends, however it does, gives its turn away.

    Raises:
        OSError: the file cannot be opened.
    """
    if file is None:
        yield
        return
    with file.open("a") as opened:
        fcntl.flock(opened, fcntl.LOCK_SH)
        token = _TURN.set(_Turn(opened.fileno()))
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
