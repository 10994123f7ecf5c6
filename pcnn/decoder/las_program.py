"""The process in which laspy and lazrs read and write, which `las_process.py` starts."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

import laspy
import numpy as np

from pcnn.ahead import in_order
from pcnn.decoder.messages import receive, send

#: Point formats 0-5 keep classes in 5 bits; what serves in their place, with 8 bits.
_EXTENDED = {0: 6, 1: 6, 2: 7, 3: 7, 4: 9, 5: 10}

#: The largest class of these formats.
_FIVE_BITS = 31

_CONFIDENCE = "confidence"

#: Points that are held at a time, of files larger than memory.
_PART = 1 << 18
#: The same while a copy is written: threads hold several parts, in two formats.
_WRITTEN = 1 << 16

#: Points of a file from which on threads change parts, and their number: the stacks and heaps of
#: threads count as memory, of which a small file allows little.
_MANY, _THREADS = 1 << 22, 3

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
    * ``copy``: write ``target``, ``packed`` or not, with the ``rows`` that the payload holds.

    and, of files larger than memory, of which a part is held at a time:

    * ``header``: as ``open``, by the header alone.
    * ``part``: as ``column``, of ``count`` points from ``first`` on.
    * ``largest``: the largest value of the properties ``names``.
    * ``classify``: write ``target``, ``packed`` or not, with the classes, up to ``most``, that the
      file ``classes`` holds as a byte a point. Behind them it holds 255 times their confidence, a
      byte a point, where ``confidence`` says so: it becomes a property of that name.
    """

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._stamp: list[Any] = []
        self._las: Any = None
        self._reader: Any = None
        self._part: tuple[int, int] = (0, -1)
        self._points: Any = None

    def answer(
        self, request: Mapping[str, Any], payload: bytearray
    ) -> tuple[dict[str, Any], bytes | memoryview]:
        """Do what a request asks for; the reply names what went wrong."""
        signal.alarm(int(request["seconds"]) + _GRACE)
        if request["stamp"] != self._stamp:
            self._forget()  # frees the points of the file before
        _limit_memory(request["memory"])
        try:
            found = self._of_a_part(request)
            if found is not None:
                return found
            las = self._whole(request["path"], request["stamp"])
            if request["task"] == "open":
                names = list(las.point_format.dimension_names)
                return {"points": len(las.points), "names": names}, b""
            if request["task"] == "column":
                name = request["name"]
                return _array(las.xyz if name is None else las[name])
            _write(las, request, payload)
            return {}, b""
        except MemoryError:
            self._forget()
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

    def _whole(self, path: str, stamp: list[Any]) -> Any:
        if self._las is None:
            self._las = laspy.read(path, laz_backend=_backend())
            self._stamp = stamp
        return self._las

    def _of_a_part(
        self, request: Mapping[str, Any]
    ) -> tuple[dict[str, Any], bytes | memoryview] | None:
        """The reply to a task that holds a part of the file at a time; None for another task."""
        task = request["task"]
        if task not in ("header", "part", "largest", "classify"):
            return None
        if task == "classify":
            _classify(request)
            return {}, b""
        if self._reader is None:
            self._reader = laspy.open(request["path"], laz_backend=_backend())
            self._stamp = request["stamp"]
        header = self._reader.header
        if task == "header":
            names = list(header.point_format.dimension_names)
            return {"points": header.point_count, "names": names}, b""
        if task == "largest":
            self._reader.seek(0)
            self._part, top = (0, -1), 0
            for points in self._reader.chunk_iterator(_PART):
                top = max([top, *(int(points[name].max()) for name in request["names"])])
            return {"largest": top}, b""
        part = (request["first"], request["count"])
        if part != self._part:
            self._reader.seek(part[0])
            self._points, self._part = self._reader.read_points(part[1]), part
        name, points = request["name"], self._points
        if name is None:
            return _array(np.stack([points.x, points.y, points.z], axis=1))
        return _array(points[name])


def _array(values: Any) -> tuple[dict[str, Any], memoryview]:
    values = np.ascontiguousarray(values)
    told = {"dtype": values.dtype.str, "shape": list(values.shape)}
    return told, values.reshape(-1).view(np.uint8).data


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
    written: Any = las
    if request["rows"] is not None:
        rows = np.frombuffer(payload, np.int64, request["rows"])
        written = laspy.LasData(las.header, las.points[rows])
    packed = request["packed"]
    with open(request["target"], "wb") as file:
        written.write(file, do_compress=packed, laz_backend=_backend() if packed else None)


def _classify(request: Mapping[str, Any]) -> None:
    """Write a copy with other classes, in a format that holds them, a part after the other."""
    packed = request["packed"]
    with laspy.open(request["path"], laz_backend=_backend()) as reader:
        # without points of its own LasData makes as many as the header announces
        none = laspy.ScaleAwarePointRecord.zeros(0, header=reader.header)
        empty = laspy.LasData(reader.header, none)
        wider = (
            _EXTENDED.get(reader.header.point_format.id) if request["most"] > _FIVE_BITS else None
        )
        header = reader.header
        if wider is not None:
            header = laspy.convert(empty, point_format_id=wider, file_version="1.4").header
        if request["confidence"]:
            header = _with_confidence(header)

        def classified(read: tuple[int, Any]) -> Any:
            at, points = read

            def held(first: int) -> Any:  # read, not mapped: a map would count as memory
                return np.fromfile(request["classes"], np.uint8, len(points), offset=first)

            if wider is not None:
                points = _widened(points, header)
            elif request["confidence"]:
                points = _copied(points, header)
            points["classification"] = held(at)
            if request["confidence"]:
                points.array[_CONFIDENCE] = held(reader.header.point_count + at)
            return points

        with (
            open(request["target"], "wb") as file,
            laspy.LasWriter(
                file,
                header,
                do_compress=packed,
                laz_backend=_backend() if packed else None,
                closefd=False,
            ) as writer,
        ):
            parts = _numbered(reader)
            many = reader.header.point_count >= _MANY
            for points in in_order(classified, parts, _THREADS) if many else map(classified, parts):
                writer.write_points(points)
            if header.version.minor >= 4 and reader.evlrs is not None:
                writer.write_evlrs(reader.evlrs)


def _numbered(reader: Any) -> Iterator[tuple[int, Any]]:
    """Parts of the points, each with the number of its first point."""
    at = 0
    for points in reader.chunk_iterator(_WRITTEN):
        yield at, points
        at += len(points)


def _with_confidence(header: Any) -> Any:
    """The header with a property ``confidence`` in 0..1, stored as a byte; in place of another."""
    header = deepcopy(header)  # that of the reader says how its points are read
    if _CONFIDENCE in header.point_format.extra_dimension_names:
        header.remove_extra_dims([_CONFIDENCE])
    full = 255.0
    byte = laspy.ExtraBytesParams(
        _CONFIDENCE, "uint8", "probability of the class", np.zeros(1), np.ones(1) / full
    )
    header.add_extra_dims([byte])
    return header


def _copied(points: Any, header: Any) -> Any:
    """Points in the format of a header, as they are stored: no scale is taken off and put on."""
    found = laspy.ScaleAwarePointRecord.zeros(len(points), header=header)
    for name in points.array.dtype.names:
        if name != _CONFIDENCE:
            found.array[name] = points.array[name]
    return found


def _widened(points: Any, header: Any) -> Any:
    """Points in the format of a header with classes of 8 bits, whose fields are others."""
    found = laspy.ScaleAwarePointRecord.zeros(len(points), header=header)
    there = set(points.point_format.dimension_names)
    for name in found.point_format.dimension_names:
        if name in there and name != _CONFIDENCE:
            found[name] = np.array(points[name])
    degrees = np.asarray(points["scan_angle_rank"]).astype(np.float64)
    found["scan_angle"] = np.round(degrees / _ANGLE).astype(np.int16)
    return found


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
