"""The process in which laspy and lazrs read and write, which `las_process.py` starts."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Mapping
from typing import Any

import laspy
import numpy as np

from pcnn.decoder.messages import receive, send

#: Point formats 0-5 keep classes in 5 bits; what serves in their place, with 8 bits.
_EXTENDED = {0: 6, 1: 6, 2: 7, 3: 7, 4: 9, 5: 10}

#: Unit of scan angles in the formats with 8 bits [deg]; in the others it is one degree.
_ANGLE = 0.006

#: The process outlives its caller's time limit by so much, then the kernel ends it [s].
_GRACE = 5


class LasProgram:
    """Serve requests, one after the other; the points of the last file are kept.

    A request names the file (``path``, ``stamp``), the limits (``memory`` [bytes] beyond what the
    process has, ``seconds``) and the ``task``:

    * ``open``: number of points and names of their properties.
    * ``column``: values of the property ``name``; x, y, z in metres for null.
    * ``copy``: write ``target``, ``packed`` or not, with the ``rows`` and ``classes`` that the
      payload holds (either may be absent).
    """

    def __init__(self) -> None:
        self._stamp: list[Any] = []
        self._las: Any = None

    def answer(
        self, request: Mapping[str, Any], payload: bytearray
    ) -> tuple[dict[str, Any], bytes | memoryview]:
        """Do what a request asks for; the reply names what went wrong."""
        signal.alarm(int(request["seconds"]) + _GRACE)
        if request["stamp"] != self._stamp:
            self._stamp, self._las = [], None  # frees the points of the file before
        _limit_memory(request["memory"])
        try:
            las = self._points(request["path"], request["stamp"])
            if request["task"] == "open":
                names = list(las.point_format.dimension_names)
                return {"points": len(las.points), "names": names}, b""
            if request["task"] == "column":
                name = request["name"]
                values = np.ascontiguousarray(las.xyz if name is None else las[name])
                found = {"dtype": values.dtype.str, "shape": list(values.shape)}
                return found, values.reshape(-1).view(np.uint8).data
            _write(las, request, payload)
            return {}, b""
        except MemoryError:
            self._stamp, self._las = [], None
            return {"error": "memory"}, b""
        except OSError as error:
            if error.errno is None:
                return {"error": "file", "rule": str(error)}, b""
            told = {"error": "system", "errno": error.errno, "text": os.strerror(error.errno)}
            return told | {"file": error.filename}, b""
        except Exception as error:  # whatever the libraries raise is told of the file
            return {"error": "file", "rule": str(error) or type(error).__name__}, b""
        finally:
            signal.alarm(0)

    def _points(self, path: str, stamp: list[Any]) -> Any:
        if self._las is None:
            self._las = laspy.read(path, laz_backend=_backend())
            self._stamp = stamp
        return self._las


def main() -> None:
    """Say that it is ready, then answer on standard output what standard input asks, to its end."""
    requests, replies = os.dup(0), os.dup(1)
    os.dup2(2, 1)  # what a library prints is no reply
    program = LasProgram()
    send(replies, {})  # ready
    while True:
        try:
            request, payload = receive(requests)
        except EOFError:
            return
        try:
            send(replies, *program.answer(request, payload))
        except BrokenPipeError:
            return


def _write(las: Any, request: Mapping[str, Any], payload: bytearray) -> None:
    """Write points of a file, whole rows, to a place that the caller renames."""
    rows = np.frombuffer(payload, np.int64, request["rows"] or 0)
    classes = np.frombuffer(payload, np.uint8, offset=rows.nbytes)
    written: Any = las
    if request["rows"] is not None:
        written = laspy.LasData(las.header, las.points[rows])
    if request["classes"]:
        written = _with_classes(written, classes)
    packed = request["packed"]
    with open(request["target"], "wb") as file:
        written.write(file, do_compress=packed, laz_backend=_backend() if packed else None)


def _with_classes(las: Any, classes: np.ndarray) -> Any:
    """A copy with other classes, in a format that holds them."""
    format_id = las.header.point_format.id
    if classes.size and classes.max() > 31 and format_id in _EXTENDED:
        degrees = np.asarray(las.scan_angle_rank).astype(np.float64)
        las = laspy.convert(las, point_format_id=_EXTENDED[format_id], file_version="1.4")
        las.scan_angle = np.round(degrees / _ANGLE).astype(np.int16)
    else:
        las = laspy.LasData(las.header, las.points.copy())
    las.classification = classes
    return las


def _limit_memory(more: int) -> None:
    """Let the process take so much more memory than it has [bytes]."""
    with open("/proc/self/statm", "rb") as file:
        held = int(file.read().split()[0]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = held + more
    soft = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _backend() -> Any:
    """Decompressor without threads: their stacks would count as memory."""
    found = laspy.LazBackend.detect_available()
    return next((b for b in found if b != laspy.LazBackend.LazrsParallel), None)
