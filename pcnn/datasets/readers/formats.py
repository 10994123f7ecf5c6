"""Point files of all formats but LAS: PLY, PCD, NPY, NPZ, BIN and text, as columns by name.

Sources: the PLY description of Greg Turk (1994); the PCD format 0.7 of the Point Cloud Library, and
Marc Lehmann's LZF for its compressed form.
"""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from pcnn.datasets.readers.columns import (
    COLORS,
    LABEL,
    LAYOUTS,
    PART,
    Columns,
    Layout,
    columns_of,
    find_name,
    is_mixed,
    layout_of,
    meant,
    ranges,
)
from pcnn.errors import FileError
from pcnn.files.arrays import Records, names_in, open_npy, read_npz, stamp_of
from pcnn.files.bounded import check_size, read_whole

log = logging.getLogger(__name__)

_HEADER = 1 << 16  # bytes
_COUNT = re.compile(r"\d{1,18}", re.ASCII)


@dataclass(frozen=True, eq=False)
class PointFile:
    """The points of a file, read whole or part by part."""

    path: Path  # the file
    rows: Any  # [P, ...] an array, or Records of a file of any size
    columns: Callable[[np.ndarray], Columns]  # some of the rows as columns
    names: tuple[str, ...] = ()  # of the columns beside x, y, z
    in_map = False
    unit = 1.0

    def __len__(self) -> int:
        return len(self.rows)

    def parts(self, wanted: Sequence[str] = ()) -> Iterator[Columns]:
        """The points in order, `PART` at a time; at least one part. All columns are there."""
        for first in range(0, max(len(self), 1), PART):
            yield self.columns(self.rows[first : first + PART])

    def whole(self, wanted: Sequence[str] = ()) -> Columns:
        """All points."""
        check_size(self.path, len(self) * self.rows.dtype.itemsize, what="its points")
        return self.columns(self.rows[:])


def _records(path: Path, start: int, dtype: np.dtype, count: int, last: bool = True) -> Records:
    """Records that a file announces; `last` where nothing may come behind them."""
    stamp = stamp_of(path)
    needed, held = count * dtype.itemsize, stamp[0] - start
    if needed > held or (last and needed < held):
        wrong = "truncated: " if held < needed else ""
        raise FileError(path, f"{wrong}{count} points need {needed} bytes, the file has {held}")
    return Records(path, start, dtype, count, (), stamp)


def _text_rows(
    path: Path, body: bytes, dtype: np.dtype, count: int, exact: bool = True
) -> np.ndarray:
    """Rows of numbers, one a line; blank lines are skipped."""
    lines = [line for line in body.decode("ascii").splitlines() if line.strip()]
    if len(lines) < count or (exact and len(lines) > count):
        raise FileError(path, f"{count} rows are announced, the file has {len(lines)}")
    if not count:
        return np.empty(0, dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)  # 1.7 would become the integer 1
        return np.loadtxt(lines, dtype, comments=None, max_rows=count, ndmin=1)


def _structured(path: Path, points: np.ndarray) -> Columns:
    """Points whose columns are the fields of an array."""
    fields = {name: points[name] for name in points.dtype.names or ()}
    for name in ("rgb", "rgba"):  # four bytes: alpha, red, green and blue, the highest first
        packed = next((n for n in fields if n.lower() == name), None)
        if {n.lower() for n in fields} & set(COLORS) or packed is None:
            continue
        if fields[packed].dtype.str in ("<f4", "<u4", "<i4"):
            words = np.ascontiguousarray(fields[packed]).view("<u4")
            for color, shift in zip(COLORS, (16, 8, 0), strict=True):
                fields[color] = (words >> shift & 0xFF).astype(np.uint8)
    lower = {name.lower(): name for name in fields}
    places = np.stack([fields[lower[axis]] for axis in "xyz"], axis=1)
    label = next((n for n in fields if meant(n) == LABEL), None)
    labels = None if label is None else _whole_numbers(path, label, fields[label])
    return Columns(path, places, fields, labels)


def _whole_numbers(path: Path, name: str, values: np.ndarray) -> np.ndarray:
    labels = values.astype(np.int64)
    if not np.array_equal(labels, values):
        raise FileError(path, f"{name} must hold whole numbers")
    return labels


def _checked(path: Path, rows: Any) -> PointFile:
    """The points of rows with fields, once these are columns."""
    names = rows.dtype.names or ()
    lower = {name.lower() for name in names}
    if len(rows.shape) != 1 or not lower >= {"x", "y", "z"}:
        raise FileError(path, f"points need fields x, y, z; found {', '.join(names)[:200]}")
    for name in names:
        if rows.dtype[name].base.kind not in "fiub":
            raise FileError(path, f"{name} holds {rows.dtype[name]}, no numbers")
        if rows.dtype[name].shape and meant(name) in ("x", "y", "z", LABEL):
            raise FileError(path, f"{name} holds several numbers a point")
    return PointFile(path, rows, partial(_structured, path), names)


def _numbers(path: Path, rows: Any, layout: Layout) -> PointFile:
    """Points of bare numbers [P, K], all looked at once."""
    if rows.shape[1:] != (len(layout.names),):
        raise FileError(path, f"found numbers {list(rows.shape)} for the columns {layout}")
    if len(rows) <= 4 * PART:
        rows = rows[:]  # read once
    found = ranges(rows, layout)
    return PointFile(path, rows, lambda part: columns_of(path, part, layout, found), layout.names)


def _bin(path: Path, layout: Layout | None) -> PointFile:
    """Float32 numbers: columns of nuScenes in ``.pcd.bin``, of KITTI unless they are named.

    Numbers that are not those of KITTI, but of one other layout that is known, are read as it.
    """
    stamp = stamp_of(path)
    if not stamp[0]:
        raise FileError(path, "the file is empty")
    if layout is not None:
        return _floats(path, layout, stamp)
    usual = LAYOUTS["nuscenes" if path.name.lower().endswith(".pcd.bin") else "kitti"]
    try:
        return _floats(path, usual, stamp, told=False)
    except ValueError as error:
        fitting: dict[int, str] = {}  # ScanNet and SUN RGB-D differ in the range of colours alone
        for name, other in LAYOUTS.items():
            with suppress(ValueError):
                _floats(path, other, stamp, told=False)
                fitting.setdefault(len(other.names), name)
        rule = error.rule if isinstance(error, FileError) else str(error)
        if len(fitting) != 1:
            fits = f"; may be {' or '.join(fitting.values())}" if fitting else ""
            raise FileError(path, f"{rule}{fits} (--columns, dataset.columns)") from error
    (name,) = fitting.values()
    _tell(f"read as columns {LAYOUTS[name]} ({name}), as {rule}", path)
    return _floats(path, LAYOUTS[name], stamp)


def _floats(path: Path, layout: Layout, stamp: tuple[int, int], told: bool = True) -> PointFile:
    """Float32 numbers of a layout, which is `told`, or must show in the numbers."""
    width = len(layout.names)
    if stamp[0] % (4 * width):
        raise FileError(path, f"{stamp[0]} bytes are no whole number of points of {layout}")
    rows = Records(path, 0, np.dtype("<f4"), stamp[0] // (4 * width), (width,), stamp)
    if not told and is_mixed(rows[:5040].reshape(-1), width):
        raise ValueError(f"the numbers are not those of columns {layout}")
    return _numbers(path, rows, layout)


@lru_cache(maxsize=16)
def _tell(text: str, path: Path) -> None:
    log.warning("%s: %s", path, text)


def _npy(path: Path, layout: Layout | None) -> PointFile:
    rows = open_npy(path)
    if rows.dtype.names:
        return _checked(path, rows)
    if len(rows.shape) != 2 or rows.shape[1] < 3 or rows.dtype.kind not in "fiu":
        raise FileError(path, f"points must be numbers [P, 3 or more], found {list(rows.shape)}")
    if layout is not None:
        return _numbers(path, rows, layout)
    further = [f"column{number}" for number in range(3, rows.shape[1])]
    names = ["intensity"] if len(further) == 1 else further

    def columns(part: np.ndarray) -> Columns:
        values = {name: part[:, 3 + place] for place, name in enumerate(names)}
        return Columns(path, part[:, :3], values, unnamed=True)

    return PointFile(path, rows, columns)


_POINTS = ("points", "xyz", "pcd", "coords", "coord", "pos", "positions", "vertices", "cloud")
_COLOURS = ("colors", "colours", "color", "colour", "rgb")
_LABELS = ("label", "labels", "class", "classes")


def _npz(path: Path, layout: Layout | None) -> PointFile:
    """Arrays ``points`` [P, 3 or more] (or ``xyz``, ...), or x, y, z; others by their names."""
    arrays = {name.lower(): values for name, values in read_npz(path).items()}
    name = next((n for n in _POINTS if n in arrays), None)
    columns: dict[str, np.ndarray] = {}
    if name is not None:
        values = arrays.pop(name)
        if values.dtype.names:
            columns |= {field: values[field] for field in values.dtype.names}
        elif values.ndim != 2 or values.shape[1] < 3 or values.dtype.kind not in "fiu":
            raise FileError(path, f"{name} must be numbers [P, 3 or more], found {values.shape}")
        else:
            names = layout.names if layout and len(layout.names) == values.shape[1] else None
            names = names or ("x", "y", "z", *(["intensity"] if values.shape[1] == 4 else []))
            columns |= {column: values[:, place] for place, column in enumerate(names)}
    for name, values in arrays.items():
        if values.dtype.kind not in "fiub" or (columns and len(values) != len(columns["x"])):
            continue
        if name in _COLOURS and values.ndim == 2 and values.shape[1] >= len(COLORS):
            columns |= {color: values[:, place] for place, color in enumerate(COLORS)}
        elif name in _LABELS and values.ndim == 1 and values.dtype.kind in "iu":
            columns[LABEL] = values
        elif values.ndim == 1:
            columns.setdefault(name, values)
    if not columns.keys() >= {"x", "y", "z"}:
        raise FileError(path, f"no array {', '.join(_POINTS[:3])} among {', '.join(arrays)[:200]}")
    count = len(columns["x"])
    kept = {n: v for n, v in columns.items() if len(v) == count or n in "xyz"}
    table = np.empty(count, [(n, v.dtype, v.shape[1:]) for n, v in kept.items()])
    for name, values in kept.items():
        table[name] = values
    return _checked(path, table)


_COMMENT = (b"#", b"//", b"%")
_BETWEEN = bytes.maketrans(b",;\t", b"   ")
_WORD = re.compile(rb"[A-Za-z_]\w*")


def _text(path: Path, layout: Layout | None) -> PointFile:
    """Numbers, a line a point; a first line of names, behind a mark of comments or not, names them.

    Without names four columns are x, y, z, intensity, and six with bytes behind are colours.
    """
    lines = read_whole(path).translate(_BETWEEN).splitlines()
    names, head = _named(lines)
    rows = [line for line in lines[head:] if not line.lstrip().startswith(_COMMENT)]
    if not rows:
        raise FileError(path, "the file is empty: it has no row of numbers")
    width = len(rows[0].split())
    kind = np.dtype([(str(number), "f8") for number in range(width)])
    values = _text_rows(path, b"\n".join(rows), kind, len([row for row in rows if row.strip()]))
    values = values.view("f8").reshape(-1, width)
    if layout is None and len(names) == width:
        layout = layout_of(names)
    if layout is None:
        layout = _likely(values)
    return _numbers(path, values, layout)


def _named(lines: list[bytes]) -> tuple[list[str], int]:
    """Names of columns in lines of text, and how many lines come before the first row."""
    names: list[str] = []
    for number, line in enumerate(lines):
        words = line.lstrip(b"#/% ").split()
        if {w.lower() for w in words} >= {b"x", b"y", b"z"} and all(map(_WORD.fullmatch, words)):
            names = [word.decode() for word in words]
        elif line.strip() and not line.lstrip().startswith(_COMMENT):
            return names, number
    return names, len(lines)


def _likely(values: np.ndarray) -> Layout:
    """Columns of numbers without names."""
    width = values.shape[1]
    if width == len(LAYOUTS["kitti"].names):
        return LAYOUTS["kitti"]
    if width == len(LAYOUTS["scannet"].names):
        with suppress(ValueError):
            ranges(values, LAYOUTS["scannet"])
            return LAYOUTS["scannet"]
    return Layout(("x", "y", "z", *(f"column{number}" for number in range(3, width))))


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
    order, elements = "", []
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
        typed.append(
            (
                name,
                count,
                np.dtype([(p, order + kind) for p, kind in properties]) if plain else None,
            )
        )
    return order, typed, len(head) + len(mark) + (2 if rest[:1] == b"\r" else 1)


def _ply(path: Path, layout: Layout | None = None) -> PointFile:
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
        return _checked(path, _records(path, start, dtype, count, last))
    body = read_whole(path)[start:]
    for _ in range(min(before - count, len(body))):
        body = body.partition(b"\n")[2]
    return _checked(path, _text_rows(path, body, dtype, count, last))


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


def _pcd(path: Path, layout: Layout | None = None) -> PointFile:
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
        return _checked(path, _records(path, start, dtype, count))
    check_size(path, count * dtype.itemsize, what="POINTS")
    body = read_whole(path)[start:]
    if words["DATA"] == ["ascii"]:
        return _checked(path, _text_rows(path, body, dtype, count))
    if words["DATA"] != ["binary_compressed"]:
        raise FileError(path, f"DATA {words['DATA'][0][:40]!r}")
    return _checked(path, _unpacked(path, body, dtype, count))


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


TEXTS = (".txt", ".xyz", ".csv", ".asc")
READERS: dict[str, Callable[[Path, Layout | None], PointFile]] = {
    ".bin": _bin,
    ".npy": _npy,
    ".npz": _npz,
    ".pcd": _pcd,
    ".ply": _ply,
    **dict.fromkeys(TEXTS, _text),
}


def has_labels(path: Path, columns: Sequence[str] | None) -> bool:
    """Whether the file of a cloud, of a format of `READERS`, holds labels of its own."""
    suffix = path.suffix.lower()
    names: Sequence[str] = ()
    if suffix in (".bin", ".npy") and columns:
        names = layout_of(columns).names
    elif suffix == ".npy":
        names = open_npy(path).dtype.names or ()
    elif suffix == ".ply":
        names = [
            name
            for element, _, dtype in ply_header(path)[1]
            if element == "vertex"
            for name in (dtype and dtype.names) or ()
        ]
    elif suffix == ".pcd":
        names = pcd_header(path)[0]["FIELDS"]
    elif suffix == ".npz":
        names = [LABEL for name in names_in(path) if name.lower() in _LABELS]
    elif suffix in TEXTS:
        with path.open("rb") as file:
            lines = file.read(_HEADER).translate(_BETWEEN).splitlines()
        names, head = _named(lines)
        if columns and len(lines) > head and len(lines[head].split()) == len(columns):
            names = layout_of(columns).names
    return find_name(LABEL, names) is not None
