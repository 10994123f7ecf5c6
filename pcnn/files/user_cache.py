"""The folder of what a user's programs keep, and locks on files that several of them write."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


def user_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock file, made with its folder where it is missing; others that name it wait."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
