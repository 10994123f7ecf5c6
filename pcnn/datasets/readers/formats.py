"""Points of all formats but LAS: BIN, NPY, text, PLY and PCD.

Whatever is raised while a file is read becomes one `FileError` that names it
(`pcnn.files.bounded.named`); what is checked here are claims that would take memory or time.

Sources: the PLY description of Greg Turk (1994); the PCD format 0.7 of the Point Cloud Library.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from pcnn.datasets.readers.columns import (
    COLORS,
    IGNORED,
    LABEL,
    LAYOUTS,
    Columns,
    Layout,
    check_ranges,
    full_color,
    is_mixed,
    layout_of,
    meant,
)
from pcnn.errors import FileError
from pcnn.files.bounded import check_size, read_npy, read_whole

_HEADER = 1 << 16  # bytes
_AXES = {"x", "y", "z"}


def _fields(path: Path, rows: np.ndarray) -> Columns:
    """Points of rows with fields."""
    fields = {name: rows[name] for name in rows.dtype.names or ()}
    lower = {name.lower(): values for name, values in fields.items()}
    if rows.ndim != 1 or not lower.keys() >= _AXES:
        raise FileError(path, f"points need fields x, y, z; found {', '.join(fields)[:200]}")
    for name, values in fields.items():
        alone = values.ndim == 1 or meant(name) not in (*_AXES, LABEL)
        if values.dtype.kind not in "fiub" or not alone:
            raise FileError(path, f"{name} holds {rows.dtype[name]}, not one number a point")
    for name in ("rgb", "rgba"):  # four bytes: alpha, red, green and blue, the highest first
        packed = None if lower.keys() & set(COLORS) else lower.get(name)
        if packed is not None and packed.dtype.str in ("<f4", "<u4", "<i4"):
            words = np.ascontiguousarray(packed).view("<u4")
            for color, shift in zip(COLORS, (16, 8, 0), strict=True):
                fields[color] = (words >> shift & 0xFF).astype(np.uint8)
    labels = next((values for name, values in fields.items() if meant(name) == LABEL), None)
    if labels is not None and not np.array_equal(labels.astype(np.int64), labels):
        raise FileError(path, "labels must be whole numbers")
    places = np.stack([lower[axis] for axis in "xyz"], axis=1)
    labels = None if labels is None else labels.astype(np.int64)
    return Columns(path, places, fields, labels, color_max=full_color(fields))


def _numbers(path: Path, rows: np.ndarray, layout: Layout, told: bool = True) -> Columns:
    """Points of bare numbers [P, K]; the layout is `told`, or must show."""
    width = len(layout.names)
    if rows.shape[1:] != (width,):
        raise FileError(path, f"found numbers {list(rows.shape)} for the columns {layout}")
    try:
        if not told and is_mixed(rows[:5040].reshape(-1), width):
            raise ValueError(f"the numbers are not those of columns {layout}")
        check_ranges(rows, layout)
    except ValueError as error:
        hint = "" if told else f" (--columns, dataset.columns: {', '.join(LAYOUTS)}, or a list)"
        raise FileError(path, f"{error}{hint}") from error
    values: dict[str, np.ndarray] = {}
    labels = None
    for column, name in zip(rows.T, layout.names, strict=True):
        if meant(name) == LABEL:  # -1 where a missing return has none
            labels = np.where(np.abs(column) <= 1 << 53, column, -1).astype(np.int64)
        elif name not in (*_AXES, IGNORED):
            values[name] = column
    places = rows[:, [layout.names.index(axis) for axis in "xyz"]]
    top = layout.intensity_max
    return Columns(path, places, values, labels, top, color_max=full_color(values))


def _bin(path: Path, layout: Layout | None) -> Columns:
    """Float32 numbers: columns of nuScenes in ``.pcd.bin``, of KITTI unless they are named."""
    usual = LAYOUTS["nuscenes" if path.name.lower().endswith(".pcd.bin") else "kitti"]
    used, size = layout or usual, path.stat().st_size
    width = len(used.names)
    if not size or size % (4 * width):
        raise FileError(path, f"{size} bytes are no whole number of points of {used}")
    check_size(path, size)
    rows = np.fromfile(path, "<f4").reshape(-1, width)
    return _numbers(path, rows, used, told=layout is not None)


def _npy(path: Path, layout: Layout | None) -> Columns:
    rows = np.atleast_1d(read_npy(path))
    if rows.dtype.names:
        return _fields(path, rows)
    upright = rows.ndim == 2 and rows.shape[1] >= 3 and not len(rows) < 7 < 100 < rows.shape[1]
    if not upright or rows.dtype.kind not in "fiu":
        raise FileError(path, f"points must be numbers [P, 3 or more], found {list(rows.shape)}")
    if layout is not None:
        return _numbers(path, rows, layout)
    further = [f"column{number}" for number in range(3, rows.shape[1])]
    names = ["intensity"] if len(further) == 1 else further
    return Columns(path, rows[:, :3], dict(zip(names, rows.T[3:], strict=True)), unnamed=True)


_COMMENT = (b"#", b"//", b"%")
_BETWEEN = bytes.maketrans(b",;\t", b"   ")
_WORD = re.compile(rb"[A-Za-z_]\w*")
_DECIMAL_COMMA = re.compile(rb"\d,\d+[;\t ]+[-+]?\d")


def _text(path: Path, layout: Layout | None) -> Columns:
    """Numbers, a line a point; a first line of names, behind a mark of comments or not, names them.

    Without names four columns are x, y, z, intensity, and six with bytes behind are colours.
    """
    text = read_whole(path).removeprefix(b"\xef\xbb\xbf")  # a mark of UTF-8 that tables begin with
    if _DECIMAL_COMMA.search(text):
        raise FileError(path, "numbers have a decimal comma: write 1.5 in place of 1,5")
    rows: list[bytes] = []
    names: list[str] = []
    for line in text.translate(_BETWEEN).splitlines():
        words = line.lstrip(b"#/% ").split()
        lower = {word.lower() for word in words}
        if not rows and lower >= {b"x", b"y", b"z"} and all(map(_WORD.fullmatch, words)):
            names = [word.decode() for word in words]
            if not line.lstrip().startswith(_COMMENT):  # a comment may be a sentence
                layout = layout or layout_of(names)
        elif line.strip() and not line.lstrip().startswith(_COMMENT):
            rows.append(line)
    if not rows:
        raise FileError(path, "the file is empty: it has no row of numbers")
    width = len(rows[0].split())
    values = np.loadtxt([row.decode("ascii") for row in rows], comments=None, ndmin=2)
    if layout is None and len(names) == width:
        layout = layout_of(names)
    if layout is None:
        layout = Layout(("x", "y", "z", *(f"column{number}" for number in range(3, width))))
        if width == len(LAYOUTS["kitti"].names):
            layout = LAYOUTS["kitti"]
        elif width == len(LAYOUTS["scannet"].names):
            with suppress(ValueError):
                check_ranges(values, LAYOUTS["scannet"])
                layout = LAYOUTS["scannet"]
    return _numbers(path, values, layout)


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


def _records(path: Path, start: int, dtype: np.dtype, count: int, last: bool = True) -> np.ndarray:
    """Records that a file announces; `last` where nothing may come behind them."""
    needed, held = count * dtype.itemsize, path.stat().st_size - start
    if not 0 <= needed <= held or (last and needed < held):
        raise FileError(path, f"truncated: {count} points need {needed} bytes, there are {held}")
    check_size(path, needed)
    return np.fromfile(path, dtype, count, offset=start).astype(dtype.newbyteorder("="), copy=False)


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


def _count(word: str) -> int:
    if not re.fullmatch(r"\d{1,18}", word, re.ASCII):
        raise ValueError(f"{word[:40]!r} is no number of points")
    return int(word)


def _ply(path: Path, layout: Layout | None) -> Columns:
    with path.open("rb") as file:
        head, _, rest = file.read(_HEADER).partition(b"end_header")
    lines = [words for line in head.decode("ascii").splitlines() if (words := line.split())]
    if lines[:1] != [["ply"]] or rest[:1] not in (b"\n", b"\r"):
        raise FileError(path, "no PLY header")
    start = len(head) + len(b"end_header") + (2 if rest[:1] == b"\r" else 1)
    order = ""
    elements: list[tuple[str, int, list[Any]]] = []
    for words in lines[1:]:
        if words[0] == "format" and not order and words[2:] == ["1.0"]:
            order = _ORDERS[words[1]]
        elif words[0] == "element" and len(words) == 3:
            elements.append((words[1], _count(words[2]), []))
        elif words[0] == "property" and len(words) == (5 if "list" in words else 3):
            elements[-1][2].append((words[-1], None if "list" in words else _PLY[words[1]]))
        elif words[0] not in ("comment", "obj_info"):
            raise FileError(path, f"header line {' '.join(words)[:80]!r}")
    names = [name for name, _, _ in elements]
    if not order or names[:1] != ["vertex"] or names.count("vertex") != 1:
        raise FileError(path, "a PLY header needs a format and vertices as its first element")
    _, count, properties = elements[0]
    if any(kind is None for _, kind in properties):
        raise FileError(path, "a list in element vertex")
    dtype = np.dtype([(word, order + kind) for word, kind in properties])
    if any(dtype[name].kind != "f" for name in dtype.names or () if name.lower() in _AXES):
        raise FileError(path, "x, y, z of vertices must be floats")
    last = len(elements) == 1
    if order != "=":
        return _fields(path, _records(path, start, dtype, count, last))
    return _fields(path, _text_rows(path, read_whole(path)[start:], dtype, count, last))


def _pcd(path: Path, layout: Layout | None) -> Columns:
    with path.open("rb") as file:
        head, mark, rest = file.read(_HEADER).partition(b"\nDATA ")
    data, end, _ = rest.partition(b"\n")
    words: dict[str, list[str]] = {"DATA": [data.decode("ascii").strip()]}
    for line in head.decode("ascii").splitlines() if end else ():
        first, *others = line.split() or ["#"]
        if not first.startswith("#") and words.setdefault(first, others) is not others:
            raise FileError(path, f"two header lines {first[:40]}")
    start = len(head) + len(mark) + len(data) + 1
    columns = words["FIELDS"], words["TYPE"], words["SIZE"]
    each = words.get("COUNT", ["1"] * len(columns[0]))
    fields: list[Any] = []
    for place, (name, kind, size, word) in enumerate(zip(*columns, each, strict=True)):
        number = _count(word)
        if kind not in ("F", "I", "U") or not 0 < number <= _HEADER:
            raise FileError(path, f"field {name[:40]} of TYPE {kind[:40]}, COUNT {number}")
        if name.lower() in _AXES and (kind != "F" or number > 1):
            raise FileError(path, f"field {name} must be one float a point")
        # PCL names padding _, several times in one file
        own = f"_{place}" if name == "_" else name
        fields.append((own, f"<{kind.lower()}{_count(size)}", (number,) if number > 1 else ()))
    dtype, count = np.dtype(fields), _count(words["POINTS"][0])
    if dtype.itemsize > _HEADER:
        raise FileError(path, f"a point of {dtype.itemsize} bytes")
    if count != _count(words.get("WIDTH", words["POINTS"])[0]) * _count(
        words.get("HEIGHT", ["1"])[0]
    ):
        raise FileError(path, "POINTS is not WIDTH x HEIGHT")
    if words["DATA"] == ["binary"]:
        return _fields(path, _records(path, start, dtype, count))
    if words["DATA"] != ["ascii"]:
        found = words["DATA"][0][:40]
        raise FileError(path, f"DATA {found!r}; read are ascii and binary")
    check_size(path, count * dtype.itemsize, what="POINTS")
    return _fields(path, _text_rows(path, read_whole(path)[start:], dtype, count))


TEXTS = (".txt", ".xyz", ".csv", ".asc")
READERS: dict[str, Callable[[Path, Layout | None], Columns]] = {
    ".bin": _bin,
    ".npy": _npy,
    ".pcd": _pcd,
    ".ply": _ply,
    **dict.fromkeys(TEXTS, _text),
}


def names_in(path: Path, columns: Sequence[str] | None) -> list[str]:
    """Names of the columns of a file, as far as its start tells them."""
    suffix, known = path.suffix.lower(), list(layout_of(columns).names) if columns else []
    with path.open("rb") as file:
        head = file.read(_HEADER)
    if suffix == ".npy":
        return list(np.load(path, mmap_mode="r").dtype.names or known)
    if suffix in (".ply", ".pcd"):
        rule = rb"property[ \t]+\w+[ \t]+(\S+)" if suffix == ".ply" else rb"FIELDS([^\n]*)"
        header, end, _ = head.partition(b"end_header" if suffix == ".ply" else b"\nDATA ")
        if not end:
            raise FileError(path, "no whole header")
        return b" ".join(re.findall(rule, header)).decode().split()
    if suffix not in TEXTS:
        return known
    lines = [line.lstrip(b"#/% ").split() for line in head.translate(_BETWEEN).splitlines()]
    if any(len(line) == len(known) > 0 for line in lines):
        return known
    return [word.decode("latin-1") for word in (lines or [[]])[0]]
