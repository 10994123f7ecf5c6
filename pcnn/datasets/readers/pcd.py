"""A strict reader of PCD files, ascii, binary and binary_compressed, and a writer of binary ones.

Source: the file format of the Point Cloud Library, version 0.7, and Marc Lehmann's LZF for its
compressed form.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pcnn.datasets.readers.label_files import completed_ranges
from pcnn.datasets.readers.number_text import number_rows
from pcnn.datasets.readers.table import COLORS, missing_axes
from pcnn.errors import FileError
from pcnn.files.bounded import LIMIT, check_size, named, read_whole
from pcnn.files.rows import HeldRows, Rows, StoredRows, stamp_of
from pcnn.files.whole_file import whole_file

_TYPES = {
    (kind, size): f"{letter}{size}"
    for kind, letter, sizes in (
        ("F", "f", (4, 8)),
        ("I", "i", (1, 2, 4, 8)),
        ("U", "u", (1, 2, 4, 8)),
    )
    for size in sizes
}
_HEADER_LIMIT = 1 << 14
#: LZF unpacks 3 bytes to 264 at most.
_LZF_RATIO = 88
_LARGEST_RECORD = 1 << 16  # bytes of a point


def read_pcd(path: Path, limit: float = LIMIT) -> np.ndarray:
    """Read the points of a PCD file.

    Args:
        path: the file.
        limit: largest size of the file, and of its points in memory [GiB].

    Returns:
        [P] structured array with the file's field names and types; a field of several numbers has
        them in its last axis.

    Raises:
        FileError: a malformed header, or data that is not what the header says: less of it, more,
            or packed data that cannot hold so much.
    """
    with named(path, "PCD file"):
        check_size(path, path.stat().st_size, limit)
        found = open_pcd(path, limit)
        return found.read(0, len(found))


def open_pcd(path: Path, limit: float = LIMIT) -> Rows:
    """The points of a PCD file of any size, read in ranges where they are binary.

    Args:
        path: the file.
        limit: largest size of one that is ascii or compressed, and of its points, which are held
            whole [GiB].

    Raises:
        FileError: as `read_pcd`.
    """
    with named(path, "PCD file"):
        stamp = stamp_of(path)
        header, size = _read_header(path)
        dtype, count = _layout(path, header)
        kind = " ".join(header["DATA"])
        if kind == "binary":
            _check_held(path, dtype, count, stamp[0] - size)
            return StoredRows(path, size, dtype, count, (), stamp)
        if kind not in ("ascii", "binary_compressed"):
            raise FileError(
                path, f"DATA must be ascii, binary or binary_compressed, found {kind[:40]!r}"
            )
        check_size(path, count * dtype.itemsize, limit, "POINTS")
        content = read_whole(path, limit)
        body = content[size:]
        if kind == "ascii":
            first = content.count(b"\n", 0, size) + 1
            return HeldRows(_ascii(path, body, dtype, count, first))
        unpacked = _decompressed(path, body, dtype, count)
        _check_held(path, dtype, count, len(unpacked))
        return HeldRows(np.frombuffer(unpacked, dtype, count).copy())


def read_pcd_names(path: Path) -> tuple[str, ...]:
    """Names of the fields of a PCD file, by its header alone.

    Raises:
        FileError: a malformed header.
    """
    with named(path, "PCD file"):
        header, _ = _read_header(path)
        return _layout(path, header)[0].names or ()


def _check_held(path: Path, dtype: np.dtype, count: int, held: int) -> None:
    needed = count * dtype.itemsize
    if held != needed:
        wrong = "truncated" if held < needed else "POINTS or a field is too small"
        raise FileError(path, f"{wrong}: {count} points need {needed} bytes, the file has {held}")


def write_pcd_with(path: Path, source: Path, added: Mapping[str, Rows]) -> None:
    """Write a cloud with all its fields and others as a binary PCD file, whole or not at all.

    A part of the cloud is in memory at a time, as `open_pcd` reads it.

    Args:
        path: the file.
        source: the cloud's file; its view point and the rows of an organised cloud stay.
        added: [P] values of a field of up to 8 bytes, by its name; they replace one of that name.

    Raises:
        FileError: as `read_pcd`, of the source.
    """
    rows = open_pcd(source, float("inf"))  # it was read before
    header, _ = _read_header(source)
    names = [name for name in rows.kind.names or () if name.lower() not in added]
    kinds = [rows.kind[name] for name in names]
    fields: list[Any] = [(n, k.base, k.shape) for n, k in zip(names, kinds, strict=True)]
    fields += [(name, values.kind) for name, values in added.items()]
    kinds += [values.kind for values in added.values()]
    shown = ["_" if re.fullmatch(r"_\d+", name) else name for name in names]  # as read_pcd numbers
    lines = [
        "# .PCD v0.7 - Point Cloud Data file format",
        "VERSION 0.7",
        f"FIELDS {' '.join([*shown, *added])}",
        f"SIZE {' '.join(str(k.base.itemsize) for k in kinds)}",
        f"TYPE {' '.join(k.base.kind.upper() for k in kinds)}",
        f"COUNT {' '.join(str(k.shape[0] if k.shape else 1) for k in kinds)}",
        f"WIDTH {' '.join(header.get('WIDTH', [str(len(rows))]))}",
        f"HEIGHT {' '.join(header.get('HEIGHT', ['1']))}",
        f"VIEWPOINT {' '.join(header.get('VIEWPOINT', list('0001000')))}",
        f"POINTS {len(rows)}",
        "DATA binary",
    ]
    with whole_file(path) as file:
        file.write(("\n".join(lines) + "\n").encode("ascii"))
        for points in completed_ranges(rows, np.dtype(fields), added):
            file.write(points.tobytes())


def pcd_names(points: np.ndarray) -> tuple[str, ...]:
    """Names of the fields, and of the colours where a field ``rgb`` or ``rgba`` packs them."""
    names = points.dtype.names or ()
    lower = {name.lower() for name in names}
    return names if _packed(points) is None or lower & set(COLORS) else (*names, *COLORS)


def pcd_column(points: np.ndarray, name: str) -> np.ndarray:
    """Values [P] of a name of `pcd_names`; packed colours are uint8.

    Four bytes hold alpha, red, green and blue, the highest first; a field of type F has the same
    bits as one of type U.
    """
    packed = _packed(points)
    if packed is None or name in (points.dtype.names or ()):
        return points[name]
    words = np.ascontiguousarray(points[packed]).view("<u4")
    shift = 16 - 8 * COLORS.index(name)
    return (words >> shift & 0xFF).astype(np.uint8)


def _packed(points: np.ndarray) -> str | None:
    for name in points.dtype.names or ():
        if name.lower() in ("rgb", "rgba") and points.dtype[name] in ("<f4", "<u4", "<i4"):
            return name
    return None


def _read_header(path: Path) -> tuple[dict[str, list[str]], int]:
    with path.open("rb") as file:
        return _header(path, file.read(_HEADER_LIMIT))


def _header(path: Path, start: bytes) -> tuple[dict[str, list[str]], int]:
    """Words of every header line by its first, and the bytes of the header."""
    words: dict[str, list[str]] = {}
    at = 0
    while "DATA" not in words:
        end = start.find(b"\n", at)
        if end < 0:
            raise FileError(path, f"not a PCD file: no DATA line in its first {len(start)} bytes")
        try:
            line = start[at:end].decode("ascii").split()
        except UnicodeDecodeError as error:
            raise FileError(path, "not a PCD file: its header is not ascii text") from error
        at = end + 1
        if not line or line[0].startswith("#"):
            continue
        if line[0] in words:
            raise FileError(path, f"the PCD header has two lines {line[0][:40]}")
        words[line[0]] = line[1:]
    return words, at


def _layout(path: Path, header: dict[str, list[str]]) -> tuple[np.dtype, int]:
    """Type of a point and number of points."""
    missing = [name for name in ("FIELDS", "SIZE", "TYPE", "POINTS") if name not in header]
    if missing:
        raise FileError(path, f"the PCD header lacks {', '.join(missing)}")
    names = header["FIELDS"]
    counts = header.get("COUNT", ["1"] * len(names))
    if not len(names) == len(header["SIZE"]) == len(header["TYPE"]) == len(counts):
        raise FileError(path, "FIELDS, SIZE, TYPE and COUNT have different lengths")
    sizes = (("SIZE", header["SIZE"]), ("COUNT", counts))
    fields: list[tuple[str, str, int]] = []
    for place, name in enumerate(names):
        size, each = (_whole(path, what, row[place]) for what, row in sizes)
        kind = _TYPES.get((header["TYPE"][place], size))
        if kind is None or not 1 <= each <= _LARGEST_RECORD:
            raise FileError(
                path,
                f"unusable PCD header: field {name[:40]} of TYPE {header['TYPE'][place][:8]}, "
                f"SIZE {size}, COUNT {each}",
            )
        # PCL names padding _, several times in one file
        fields.append((f"_{place}" if name == "_" else name, f"<{kind}", each))
    unique = {name for name, _, _ in fields}
    if len(unique) < len(fields):
        raise FileError(path, "unusable PCD header: a field occurs twice")
    if missing_axes(names):
        raise FileError(path, f"a cloud needs the fields x, y and z, found {' '.join(names)[:200]}")
    shaped = [(n, k) if c == 1 else (n, k, (c,)) for n, k, c in fields]
    dtype = np.dtype(shaped)  # type: ignore[arg-type]
    if dtype.itemsize > _LARGEST_RECORD:
        raise FileError(path, f"a point of {dtype.itemsize} bytes is too large")
    for name in dtype.names or ():
        if name.lower() in ("x", "y", "z") and (dtype[name].shape or dtype[name].kind != "f"):
            raise FileError(path, f"field {name} must be one float a point")
    return dtype, _count(path, header)


def _count(path: Path, header: dict[str, list[str]]) -> int:
    """POINTS, which is WIDTH x HEIGHT where these are given."""
    given = {
        name: _whole(path, name, " ".join(header[name]))
        for name in ("POINTS", "WIDTH", "HEIGHT")
        if name in header
    }
    count = given["POINTS"]
    if "WIDTH" in given and given["WIDTH"] * given.get("HEIGHT", 1) != count:
        raise FileError(
            path,
            f"POINTS {count} is not WIDTH {given['WIDTH']} x HEIGHT {given.get('HEIGHT', 1)}",
        )
    return count


def _whole(path: Path, name: str, word: str) -> int:
    if not (word.isascii() and word.isdecimal() and len(word) <= 18):
        raise FileError(
            path,
            f"unusable PCD header: {name} must be whole numbers from 0 on, found {word[:40]!r}",
        )
    return int(word)


def _ascii(path: Path, body: bytes, dtype: np.dtype, count: int, first: int) -> np.ndarray:
    flat = []  # fields of one number each, in the order of the words
    for name in dtype.names or ():
        width = dtype[name].shape[0] if dtype[name].shape else 1
        flat += [
            (f"{name}[{place}]" if width > 1 else name, dtype[name].base) for place in range(width)
        ]
    rows = number_rows(path, body, np.dtype(flat), count, first)
    return rows.view(dtype)


def _decompressed(path: Path, body: bytes, dtype: np.dtype, count: int) -> bytes:
    """The fields one after the other, compressed by LZF, as rows of points."""
    if len(body) < 8:
        raise FileError(path, "truncated: no sizes before the compressed data")
    packed, full = (int(size) for size in np.frombuffer(body, "<u4", 2))
    if full != count * dtype.itemsize or len(body) != 8 + packed:
        raise FileError(
            path,
            f"compressed data of {packed} bytes for {full} does not fit {count} points of "
            f"{dtype.itemsize} bytes in {len(body) - 8} bytes",
        )
    if full > _LZF_RATIO * packed:
        raise FileError(path, f"{packed} bytes of compressed data cannot hold {full}")
    try:
        planes = _lzf(body[8:], full)
    except IndexError as error:
        raise FileError(path, "the compressed data is torn") from error
    if len(planes) != full:
        raise FileError(path, f"the compressed data holds {len(planes)} bytes, not {full}")
    points = np.zeros(count, dtype)
    at = 0
    for name in dtype.names or ():
        field = dtype[name]
        end = at + count * field.itemsize
        points[name] = np.frombuffer(planes[at:end], field.base).reshape(count, *field.shape)
        at = end
    return points.tobytes()


def _lzf(packed: bytes, full: int) -> bytes:
    out = bytearray()
    at = 0
    while at < len(packed):
        control = packed[at]
        at += 1
        if control < 32:  # so many bytes as they are
            if at + control + 1 > len(packed):
                raise IndexError
            out += packed[at : at + control + 1]
            at += control + 1
        else:
            length = control >> 5
            if length == 7:
                length += packed[at]
                at += 1
            back = len(out) - ((control & 31) << 8) - packed[at] - 1
            at += 1
            if back < 0:
                raise IndexError
            # may run into what it writes itself: then it repeats
            seen = out[back : back + length + 2]
            out += (seen * -(-(length + 2) // len(seen)))[: length + 2]
        if len(out) > full:
            raise IndexError
    return bytes(out)
