"""The process in which laspy and lazrs read and write: `python -I las_child.py REQUEST`.

A library that aborts, hangs or takes all memory ends this process, not the job. To read, it writes
a line of JSON about the file, then records of the points, part by part. To write, it copies a file
with other classes. It exits with 1 and the reason on standard error.
"""

import json
import os
import resource
import struct
import sys
from copy import deepcopy
from typing import Any, BinaryIO

import laspy
import numpy as np

#: Memory beyond what the process has, and time: a decompressor may take neither all, nor for ever.
_MEMORY, _SECONDS = 3 << 30, 600
#: Point formats 0-5 keep classes in 5 bits; what serves in their place, with 8 bits.
_EXTENDED = {0: 6, 1: 6, 2: 7, 3: 7, 4: 9, 5: 10}
_FIVE_BITS = 31
_COLORS = ("red", "green", "blue")
#: Unit of scan angles in the formats with 8 bits [deg]; in the others it is one degree.
_ANGLE = 0.006
_PART = 1 << 18
#: Lidar packs to a fifth or a twentieth; points that are all the same to a few hundredths.
_RATIO, _HARMLESS = 500, 1 << 28


def main() -> None:
    """Do what the request says."""
    request = json.loads(sys.argv[1])
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no record
    with open("/proc/self/statm") as pages:
        held = int(pages.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + _MEMORY,) * 2)
    found = laspy.LazBackend.detect_available()  # without threads, whose stacks count as memory
    backend = next((b for b in found if b != laspy.LazBackend.LazrsParallel), None)
    try:
        _check_counts(request["path"])
        with laspy.open(request["path"], laz_backend=backend) as reader:
            _check(reader.header, os.stat(request["path"]).st_size)
            if "target" in request:
                _classify(reader, request, backend)
            else:
                _read(reader, request["wanted"], out)
    except MemoryError:
        sys.exit(f"it takes more than {_MEMORY >> 30} GiB of memory")
    except Exception as error:
        sys.exit(str(error) or type(error).__name__)


def _check_counts(path: str) -> None:
    """Refuse more records beside the points than there is room for: laspy would count for hours."""
    with open(path, "rb") as file:
        head = file.read(255).ljust(255, b"\0")
    start, records = struct.unpack_from("<II", head, 96)
    (extended,) = struct.unpack_from("<I", head, 243)
    if 54 * records > start or (head[25] >= 4 and 60 * extended > os.stat(path).st_size):
        raise ValueError(f"{records} and {extended} records, for which there is no room")


def _check(header: Any, size: int) -> None:
    announced = header.point_count * header.point_format.size
    held = size - header.offset_to_point_data
    if header.are_points_compressed and announced > max(_HARMLESS, _RATIO * size):
        raise ValueError(f"{header.point_count} points in {size} bytes")
    if not header.are_points_compressed and announced > held:
        raise ValueError(f"truncated: {header.point_count} points in {held} bytes")
    placing = [*header.scales, *header.offsets]
    if not np.isfinite(placing).all() or 0.0 in placing[:3]:
        raise ValueError("scale factors or offsets that are zero, NaN or infinite")
    seconds = int(_SECONDS + announced / 1e6)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))


def _read(reader: Any, wanted: Any, out: BinaryIO) -> None:
    header = reader.header
    lower = {name.lower(): name for name in header.point_format.dimension_names}
    found = [next((lower[n] for n in names if n in lower), None) for names in wanted or ()]
    names = [*"xyz", *dict.fromkeys(name for name in found if name is not None)]
    none = laspy.ScaleAwarePointRecord.zeros(0, header=header)
    kinds = [(n, "<f8" if n in ("x", "y", "z") else np.asarray(none[n]).dtype.str) for n in names]
    full = 255
    if set(_COLORS) & set(names) and header.point_count:
        for points in reader.chunk_iterator(_PART):
            if max(int(points[n].max(initial=0)) for n in _COLORS if n in lower) > full:
                full = 65535
                break
        reader.seek(0)
    about = {"points": header.point_count, "fields": kinds, "full": full}
    out.write(json.dumps(about).encode() + b"\n")
    out.flush()
    if wanted is None:
        return
    count = 0
    for points in reader.chunk_iterator(_PART):
        records = np.empty(len(points), kinds)
        for name in names:
            records[name] = np.asarray(points[name])
        out.write(records.data)
        count += len(records)
    if count != header.point_count:
        raise ValueError(f"truncated: {count} of {header.point_count} points")
    out.flush()


def _classify(reader: Any, request: dict[str, Any], backend: Any) -> None:
    """Write a copy with other classes, in a format that holds them."""
    header = deepcopy(reader.header)  # that of the reader says how its points are read
    # a copy is not sorted into an octree, as that of COPC is
    header.vlrs = type(header.vlrs)(v for v in header.vlrs if v.user_id != "copc")
    wider = _EXTENDED.get(header.point_format.id) if request["most"] > _FIVE_BITS else None
    if wider is not None:
        none = laspy.ScaleAwarePointRecord.zeros(0, header=header)
        empty = laspy.LasData(header, none)
        header = laspy.convert(empty, point_format_id=wider, file_version="1.4").header
    packed = request["packed"]
    with open(request["classes"], "rb") as classes, open(request["target"], "wb") as file:
        used = backend if packed else None
        writer = laspy.LasWriter(file, header, packed, laz_backend=used, closefd=False)
        for points in reader.chunk_iterator(_PART // 4):
            kept = points if wider is None else _widened(points, header)
            kept["classification"] = np.frombuffer(classes.read(len(points)), np.uint8)
            writer.write_points(kept)
        evlrs = [v for v in reader.evlrs or [] if v.user_id != "copc"]
        if header.version.minor >= 4 and evlrs:
            writer.write_evlrs(type(reader.evlrs)(evlrs))
        writer.close()


def _widened(points: Any, header: Any) -> Any:
    """Points in the format of a header, as they are stored: no scale is taken off and put on."""
    found = laspy.ScaleAwarePointRecord.zeros(len(points), header=header)
    there = set(points.point_format.dimension_names)
    for name in found.point_format.dimension_names:
        if name in there:
            found[name] = np.array(points[name])
    degrees = np.asarray(points["scan_angle_rank"]).astype(np.float64)
    found["scan_angle"] = np.round(degrees / _ANGLE).astype(np.int16)
    return found


if __name__ == "__main__":
    main()
