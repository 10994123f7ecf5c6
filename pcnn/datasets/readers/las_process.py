"""The process that reads LAS and LAZ files, from its caller's side.

A library that aborts, hangs or takes all memory ends that process, not the job: the caller gets an
error that names the file, and the next file a fresh process.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any

from pcnn.decoder.messages import SilenceError, receive, send
from pcnn.errors import FileError, MissingPackageError

#: The modules come from the caller's own path: no folder of clouds is searched for them.
_START = "import sys; sys.path[:] = sys.argv[1:]; from pcnn.decoder.las_program import main; main()"
#: Time for the start, on a machine that is busy [s].
_START_SECONDS = 120.0

_ROOT = str(Path(__file__).resolve().parents[3])


@dataclass(frozen=True)
class Limits:
    """Memory and time that a request may take.

    Args:
        memory: bytes beyond what the process holds.
        seconds: time.
    """

    memory: int
    seconds: float

    @classmethod
    def of(cls, announced: int) -> Limits:
        """Limits that follow the points of a file.

        Args:
            announced: bytes of its points, not compressed.
        """
        return cls((1 << 29) + 12 * announced, 60.0 + announced / 2e6)


class LasProcess:
    """A process that serves one request after the other; it starts at the first, and after a crash.

    Its input is a pipe from this process, so it ends when this one does. It has a session of its
    own: Ctrl-C reaches the caller, whose interruption in the midst of a request ends it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._told: IO[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Number of the process; None while there is none."""
        return None if self._process is None else self._process.pid

    def ask(
        self,
        path: Path,
        request: Mapping[str, Any],
        limits: Limits,
        payload: bytes | memoryview = b"",
    ) -> tuple[dict[str, Any], bytearray]:
        """Send a request and wait for the reply.

        Args:
            path: the file, for errors.
            request: a task of `pcnn.decoder.las_program.LasProgram` and what it needs.
            limits: what it may take.
            payload: bytes of arrays.

        Returns:
            The reply, and the bytes of an array.

        Raises:
            OSError: as the process met it, a full disk for example.
            MissingPackageError: the process does not start.
            FileError: a library refused the file, broke, or went beyond the limits.
        """
        with self._lock:
            asked, answers = _pipes(self._running(path))
            try:
                deadline = time.monotonic() + limits.seconds
                limited = {"memory": limits.memory, "seconds": limits.seconds}
                send(asked, {**request, **limited}, payload, deadline)
                reply, values = receive(answers, deadline)
            except SilenceError:
                self.close()
                raise FileError(
                    path, f"reading it takes more than {limits.seconds:g} s; is it damaged?"
                ) from None
            except (EOFError, BrokenPipeError):
                words = self._last_words()
                if "memory allocation" in words:  # then a library aborts
                    words = _too_much(limits)
                else:
                    words = f"the process that reads it {words}; the file is damaged"
                raise FileError(path, words) from None
            except BaseException:  # the rest of the reply would answer the next request
                self.close()
                raise
        if "error" not in reply:
            return reply, values
        if reply["error"] == "system":
            raise OSError(reply["errno"], reply["text"], reply["file"] or str(path))
        if reply["error"] == "memory":
            raise FileError(path, _too_much(limits))
        raise FileError(path, f"not a whole LAS file ({reply['rule']})")

    def close(self) -> None:
        """End the process; the next request starts another."""
        if self._process is not None:
            _end(self._process, os.getpid())
            self._process = None

    def _running(self, path: Path) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is not None:
            self.close()  # something else ended it; no file is to blame
        if self._process is None:
            self._told = tempfile.TemporaryFile()  # noqa: SIM115  (as long as the process)
            paths = [entry for entry in sys.path if entry]
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-c", _START, *paths, _ROOT],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._told,
                start_new_session=True,
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "RUST_BACKTRACE": "0"},
            )
            weakref.finalize(self, _end, self._process, os.getpid())
            asked, answers = _pipes(self._process)
            for fd in (asked, answers):
                os.set_blocking(fd, False)
            try:
                receive(answers, time.monotonic() + _START_SECONDS)
            except (EOFError, SilenceError):
                words = self._last_words()
                raise MissingPackageError(
                    f"{path}: the process that reads LAS files does not start; it {words}"
                ) from None
        return self._process

    def _last_words(self) -> str:
        """How the process ended, which has closed its output."""
        assert self._process is not None
        assert self._told is not None
        process, told = self._process, self._told
        try:
            code = process.wait(5)
        except subprocess.TimeoutExpired:
            code = -signal.SIGKILL
        told.seek(max(0, told.seek(0, os.SEEK_END) - 4096))
        lines = told.read().decode(errors="replace").strip().splitlines()
        self.close()
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        said = next((line for line in lines if "memory allocation" in line), (lines or [""])[-1])
        return f"ended {how}" + (f": {said}" if said else "")


@cache
def las_process(caller: int) -> LasProcess:
    """Return the process that reads for a caller, the same at every call.

    Args:
        caller: number of the calling process; one that was forked gets a process of its own.
    """
    return LasProcess()


def _too_much(limits: Limits) -> str:
    return f"reading it takes more than {max(1, limits.memory >> 20):,} MiB of memory"


def _pipes(process: subprocess.Popen[bytes]) -> tuple[int, int]:
    assert process.stdin is not None
    assert process.stdout is not None
    return process.stdin.fileno(), process.stdout.fileno()


def _end(process: subprocess.Popen[bytes], owner: int) -> None:
    """Kill a process, in the one that started it; a forked copy has only its pipes to close."""
    for stream in (process.stdin, process.stdout):
        if stream is not None and not stream.closed:
            stream.close()
    if os.getpid() == owner:
        process.kill()
        process.wait()
