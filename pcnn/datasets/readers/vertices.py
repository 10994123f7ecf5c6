"""PLY and PCD files, text, binary and compressed.

Sources: the PLY description of Greg Turk (1994); the PCD format 0.7 of the Point Cloud Library, and
Marc Lehmann's LZF for its compressed form.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from pcnn.datasets.readers.columns import Layout
from pcnn.datasets.readers.point_file import PointFile, records_of, text_rows, with_fields
from pcnn.errors import FileError
from pcnn.files.bounded import check_size, read_whole

_HEADER = 1 << 16  # bytes
_COUNT = re.compile(r"\d{1,18}", re.ASCII)

_PLY = {
    **dict.fromkeys(("char", "int8"), "i1"),
    **dict.fromkeys(("uchar", "uint8"), "u1"),
    **dict.fromkeys(("short", "int16"), "i2"),
    **dict.fromkeys(("ushort", "uint16"), "u2"),
    **dict.fromkeys(("int", "int32"), "i4"),
    **dict.fromkeys(("uint", "uint32"), "u4"),
    **dict.fromkeys(("float", "float32"), "f4"),
    **dict.fromkeys(("double", "float64"), "f8"),
}
_ORDERS = {"ascii": "=", "binary_little_endian": "<", "binary_big_endian": ">"}


def ply_header(path: Path) -> tuple[str, list[tuple[str, int, np.dtype | None]], int]:
    """Byte order (``=`` for text), elements (name, number, type; None: with lists), header's bytes.

    Elements behind the vertices are of no matter.
    """
    with path.open("rb") as file:
        head, mark, rest = file.read(_HEADER).partition(b"end_header")
    lines = [words for line in head.decode("ascii").splitlines() if (words := line.split())]
    if lines[:1] != [["ply"]] or rest[:1] not in (b"\n", b"\r"):
        raise FileError(path, "no PLY header")
    order = ""
    elements: list[Any] = []
    for words in lines[1:]:
        if words[0] == "format" and not order and words[2:] == ["1.0"]:
            order = _ORDERS[words[1]]
        elif words[0] == "element" and len(words) == 3 and _COUNT.fullmatch(words[2]):
            elements.append((words[1], int(words[2]), []))
        elif words[0] == "property" and elements and len(words) == (5 if "list" in words else 3):
            elements[-1][2].append((words[-1], None if "list" in words else _PLY[words[1]]))
        elif words[0] not in ("comment", "obj_info"):
            raise FileError(path, f"header line {' '.join(words)[:80]!r}")
    if not order or [name for name, _, _ in elements].count("vertex") != 1:
        raise FileError(path, "a PLY header needs a format and one element vertex")
    typed = []
    for name, count, properties in elements:
        plain = all(kind for _, kind in properties)
        dtype = np.dtype([(p, order + kind) for p, kind in properties]) if plain else None
        typed.append((name, count, dtype))
    return order, typed, len(head) + len(mark) + (2 if rest[:1] == b"\r" else 1)


def open_ply(path: Path, layout: Layout | None = None) -> PointFile:
    order, elements, start = ply_header(path)
    at = [name for name, _, _ in elements].index("vertex")
    last = at == len(elements) - 1
    _, count, dtype = elements[at]
    before = 0
    for name, number, kind in elements[: at + 1]:
        if kind is None:
            raise FileError(path, f"a list in element {name}")
        before += number if order == "=" else number * kind.itemsize
    assert dtype is not None
    if any(dtype[name].kind != "f" for name in dtype.names or () if name.lower() in "xyz"):
        raise FileError(path, "x, y, z of vertices must be floats")
    if order != "=":
        start += before - count * dtype.itemsize
        return with_fields(path, records_of(path, start, dtype, count, last))
    body = read_whole(path)[start:]
    for _ in range(min(before - count, len(body))):
        body = body.partition(b"\n")[2]
    return with_fields(path, text_rows(path, body, dtype, count, last))


_PCD = {("F", 4), ("F", 8), *((kind, size) for kind in "IU" for size in (1, 2, 4, 8))}


def pcd_header(path: Path) -> tuple[dict[str, list[str]], int]:
    """Words of every header line of a PCD file by its first, and the bytes of the header."""
    with path.open("rb") as file:
        head, mark, rest = file.read(_HEADER).partition(b"\nDATA ")
    kind, end, _ = rest.partition(b"\n")
    if not (mark and end):
        raise FileError(path, "no PCD header")
    words: dict[str, list[str]] = {"DATA": [kind.decode("ascii").strip()]}
    for line in head.decode("ascii").splitlines():
        first, *others = line.split() or ["#"]
        if not first.startswith("#") and words.setdefault(first, others) is not others:
            raise FileError(path, f"two header lines {first[:40]}")
    return words, len(head) + len(mark) + len(kind) + 1


def open_pcd(path: Path, layout: Layout | None = None) -> PointFile:
    words, start = pcd_header(path)
    counts = words.get("COUNT", ["1"] * len(words["FIELDS"]))
    sizes = [*words["SIZE"], *counts, *words.get("WIDTH", []), *words.get("HEIGHT", [])]
    if not all(map(_COUNT.fullmatch, [*sizes, *words["POINTS"]])):
        raise FileError(path, "a number of the PCD header is none")
    fields: list[Any] = []
    rows = zip(words["FIELDS"], words["TYPE"], words["SIZE"], counts, strict=True)
    for place, (name, kind, size, each) in enumerate(rows):
        if (kind, int(size)) not in _PCD or not 0 < int(each) <= _HEADER:
            raise FileError(path, f"field {name[:40]} of TYPE {kind}, SIZE {size}, COUNT {each}")
        if name.lower() in ("x", "y", "z") and (kind != "F" or int(each) > 1):
            raise FileError(path, f"field {name} must be one float a point")
        shape = (int(each),) if int(each) > 1 else ()
        # PCL names padding _, several times in one file
        fields.append((f"_{place}" if name == "_" else name, f"<{kind.lower()}{size}", shape))
    dtype, count = np.dtype(fields), int(words["POINTS"][0])
    if dtype.itemsize > _HEADER:
        raise FileError(path, f"a point of {dtype.itemsize} bytes")
    if "WIDTH" in words and count != int(words["WIDTH"][0]) * int(words.get("HEIGHT", ["1"])[0]):
        raise FileError(path, "POINTS is not WIDTH x HEIGHT")
    if words["DATA"] == ["binary"]:
        return with_fields(path, records_of(path, start, dtype, count))
    check_size(path, count * dtype.itemsize, what="POINTS")
    body = read_whole(path)[start:]
    if words["DATA"] == ["ascii"]:
        return with_fields(path, text_rows(path, body, dtype, count))
    if words["DATA"] != ["binary_compressed"]:
        raise FileError(path, f"DATA {words['DATA'][0][:40]!r}")
    return with_fields(path, _unpacked(path, body, dtype, count))


_LZF_RATIO = 88  # LZF unpacks 3 bytes to 264 at most


def _unpacked(path: Path, body: bytes, dtype: np.dtype, count: int) -> np.ndarray:
    """Rows of points, of fields one after the other that are compressed by LZF."""
    packed, full = (int(size) for size in np.frombuffer(body[:8], "<u4", 2))
    if full != count * dtype.itemsize or len(body) != 8 + packed or full > _LZF_RATIO * packed:
        raise FileError(path, f"{packed} bytes for {full} are not those of {count} points")
    planes = _lzf(body[8:], full)
    if len(planes) != full:
        raise FileError(path, f"the compressed data holds {len(planes)} bytes, not {full}")
    points, at = np.zeros(count, dtype), 0
    for name in dtype.names or ():
        field = dtype[name]
        values = np.frombuffer(
            planes, field.base, count * field.itemsize // field.base.itemsize, at
        )
        points[name] = values.reshape(count, *field.shape)
        at += count * field.itemsize
    return points


def _lzf(packed: bytes, full: int) -> bytes:
    out = bytearray()
    at = 0
    while at < len(packed):
        control = packed[at]
        at += 1
        if control < 32:  # so many bytes as they are
            if at + control + 1 > len(packed):
                raise IndexError("torn")
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
                raise IndexError("torn")
            # may run into what it writes itself: then it repeats
            seen = out[back : back + length + 2]
            out += (seen * -(-(length + 2) // len(seen)))[: length + 2]
        if len(out) > full:
            raise IndexError("torn")
    return bytes(out)
