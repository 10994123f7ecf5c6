"""One process at a time writes a run folder."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pcnn.experiment.errors import ConfigError
from pcnn.experiment.processes import rank

log = logging.getLogger(__name__)

NAME = ".lock"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a run folder.

    The kernel holds it for this process, and takes it back when the process ends in any way: a
    killed run leaves a file, never a lock. Processes that it forked, as workers of a loader are, do
    not hold it, so they cannot keep it. Rank 0 holds it for the ranks of one run. On a network file
    system it works across machines where the system has locks; where it has none, a warning says
    so.

    Args:
        folder: of the run; made where it is missing.

    Raises:
        ConfigError: another process holds it; names the process.
    """
    if rank() != 0:
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / NAME
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
                    f"{path.parent} is in use by {owner or 'another process'}.\n"
                    "possible: wait until it has ended, or end it (kill PID), then give the same "
                    "command; or another hydra.run.dir"
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
