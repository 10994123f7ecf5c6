"""The process in which laspy and lazrs read and write, given a request as its argument.

A library that aborts, hangs or takes all memory ends this process, not the job. What it writes goes
to standard output: the points as an array of records in NumPy's format, or a copy of the file with
other classes. It exits with 1 and the reason on standard error.
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
_COLORS = ("red", "green", "blue")
_FULL = 65535
#: Point formats 0-5 keep classes in 5 bits; what serves in their place, with 8 bits. Their scan
#: angles are degrees, the others' 0.006 of one.
_EXTENDED = {0: 6, 1: 6, 2: 7, 3: 7, 4: 9, 5: 10}
_FIVE_BITS, _ANGLE = 31, 0.006
_PART = 1 << 18
#: Lidar packs to a fifth or a twentieth; points that are all the same to a few hundredths.
_RATIO, _HARMLESS = 500, 1 << 28


def main() -> None:
    """Do what the request says."""
    request = json.loads(sys.argv[1])
    out = os.fdopen(os.dup(1), "w+b")
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
            if "classes" in request:
                _classify(reader, request, out, backend if request["packed"] else None)
            else:
                _read(reader, request["wanted"], out)
            out.flush()
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


def _read(reader: Any, wanted: list[list[str]], out: BinaryIO) -> None:
    """Write the coordinates and the first of each list of names that the file has."""
    header = reader.header
    lower = {name.lower(): name for name in header.point_format.dimension_names}
    found = [next((lower[n] for n in names if n in lower), None) for names in wanted]
    names = [name for name in dict.fromkeys(found) if name is not None]
    none = laspy.ScaleAwarePointRecord.zeros(0, header=header)
    kind = np.dtype([("places", "<f8", (3,)), *((n, np.asarray(none[n]).dtype) for n in names)])
    times = 1
    colors = set(_COLORS) & set(header.point_format.standard_dimension_names)
    if colors & set(names) and header.point_count:  # many programs write them with eight bits
        parts = reader.chunk_iterator(_PART)
        tops = [int(points[n].max(initial=0)) for points in parts for n in colors]
        times = _FULL // 255 if max(tops) <= 255 else 1
        reader.seek(0)
    shape = (header.point_count,)
    facts = {"descr": np.lib.format.dtype_to_descr(kind), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_2_0(out, facts)
    count = 0
    for points in reader.chunk_iterator(_PART):
        records = np.empty(len(points), kind)
        records["places"] = np.stack([points.x, points.y, points.z], axis=1)
        for name in names:
            records[name] = np.asarray(points[name]) * (times if name in colors else 1)
        out.write(records.data)
        count += len(records)
    if count != header.point_count:
        raise ValueError(f"truncated: {count} of {header.point_count} points")
    sys.stderr.write("\n" + ", ".join([*header.point_format.dimension_names][3:]))


def _classify(reader: Any, request: dict[str, Any], out: BinaryIO, backend: Any) -> None:
    """Write a copy with other classes, in a format that holds them."""
    header = deepcopy(reader.header)  # that of the reader says how its points are read
    # a copy is not sorted into an octree, as that of COPC is
    header.vlrs = type(header.vlrs)(v for v in header.vlrs if v.user_id != "copc")
    wider = _EXTENDED.get(header.point_format.id) if request["most"] > _FIVE_BITS else None

    def widened(points: Any) -> Any:
        las = laspy.LasData(deepcopy(header), points)
        return laspy.convert(las, point_format_id=wider, file_version="1.4")

    own = header
    if wider is not None:
        own = widened(laspy.ScaleAwarePointRecord.zeros(0, header=header)).header
    writer = laspy.LasWriter(out, own, request["packed"], laz_backend=backend, closefd=False)
    classes = np.fromfile(request["classes"], np.uint8)
    for points in reader.chunk_iterator(_PART // 4):
        kept = points
        if wider is not None:
            kept = widened(points).points
            kept["scan_angle"] = np.round(np.asarray(points["scan_angle_rank"]) / _ANGLE)
        kept["classification"], classes = classes[: len(points)], classes[len(points) :]
        writer.write_points(kept)
    evlrs = [v for v in reader.evlrs or [] if v.user_id != "copc"]
    if own.version.minor >= 4 and evlrs:
        writer.write_evlrs(type(reader.evlrs)(evlrs))
    writer.close()


if __name__ == "__main__":
    main()
