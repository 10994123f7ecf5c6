"""A strict reader of the vertices of PLY files, ascii and binary, and a writer of binary ones.

Source: the PLY description of Greg Turk (1994): a text header that names elements and their
properties, then the elements in that order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pcnn.datasets.readers.number_text import number_rows
from pcnn.errors import FileError
from pcnn.files.bounded import LIMIT, check_size, named, read_whole
from pcnn.files.rows import HeldRows, Rows, StoredRows, stamp_of
from pcnn.files.whole_file import whole_file

_TYPES = {
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
_NAMES = {"i1": "char", "u1": "uchar", "i2": "short", "u2": "ushort", "i4": "int", "u4": "uint"}
_NAMES |= {"f4": "float", "f8": "double"}
_HEADER_LIMIT = 1 << 16


@dataclass(frozen=True)
class _Element:
    name: str
    count: int
    properties: tuple[tuple[str, str], ...]  # (name, numpy type without byte order)
    has_list: bool

    def dtype(self, order: str) -> np.dtype:
        return np.dtype([(name, order + kind) for name, kind in self.properties])


@dataclass(frozen=True)
class PlyHeader:
    """The announcements of a PLY file.

    Args:
        path: the file.
        order: numpy byte order of binary data; ``=`` for ascii.
        before: elements in front of the vertices.
        vertex: the vertices.
        is_last: nothing is announced after the vertices.
        size: bytes of the header.
    """

    path: Path
    order: str
    before: tuple[_Element, ...]
    vertex: _Element
    is_last: bool
    size: int

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the vertex properties."""
        return tuple(name for name, _ in self.vertex.properties)

    @property
    def is_ascii(self) -> bool:
        """True where the data is text."""
        return self.order == "="


def read_ply(path: Path, limit: float = LIMIT) -> np.ndarray:
    """Read the vertices of a PLY file.

    Args:
        path: the file.
        limit: its largest size [GiB].

    Returns:
        [P] structured array in native byte order with the file's property names and types.

    Raises:
        FileError: a malformed header, truncated data, text that is no number, a list property
            among or before the vertices, or data after the last vertex that nothing announces.
    """
    path = Path(path)
    with named(path, "PLY file"):
        check_size(path, path.stat().st_size, limit)
        found = open_ply(path, limit)
        return found.read(0, len(found))


def open_ply(path: Path, limit: float = LIMIT) -> Rows:
    """The vertices of a PLY file of any size, read in ranges where they are binary.

    Args:
        path: the file.
        limit: largest size of an ascii file, which is held whole [GiB].

    Raises:
        FileError: as `read_ply`.
    """
    with named(path, "PLY file"):
        header = read_ply_header(path)
        if header.is_ascii:
            return HeldRows(_ascii(header, read_whole(path, limit)))
        return _binary(header)


def write_ply(path: Path, vertices: np.ndarray) -> None:
    """Write vertices as a binary little-endian PLY file, whole or not at all.

    Args:
        path: the file.
        vertices: [P] structured array of numbers of up to 8 bytes, floats, or integers of up to 4.

    Raises:
        ValueError: a field of another type.
    """
    write_ply_parts(path, vertices.dtype, len(vertices), [vertices])


def write_ply_parts(path: Path, dtype: np.dtype, count: int, parts: Iterable[np.ndarray]) -> None:
    """Write vertices part by part, as `write_ply`; a part is in memory at a time.

    Args:
        path: the file.
        dtype: of the vertices.
        count: their number P.
        parts: of them, in order.
    """
    kinds = {name: dtype[name].str[1:] for name in dtype.names or ()}
    other = [name for name, kind in kinds.items() if kind not in _NAMES]
    if other:
        raise ValueError(f"{path}: {other[0]} is {dtype[other[0]]}, no type of PLY files")
    lines = ["ply", "format binary_little_endian 1.0", f"element vertex {count}"]
    lines += [f"property {_NAMES[kind]} {name}" for name, kind in kinds.items()]
    packed = np.dtype([(name, f"<{kind}") for name, kind in kinds.items()])
    with whole_file(path) as file:
        file.write(("\n".join([*lines, "end_header"]) + "\n").encode("ascii"))
        for vertices in parts:
            file.write(vertices.astype(packed).tobytes())


def read_ply_header(path: Path) -> PlyHeader:
    """Read the header of a PLY file.

    Raises:
        FileError: not a PLY file, or a header that breaks the format.
    """
    with named(path, "PLY file"), path.open("rb") as file:
        start = file.read(_HEADER_LIMIT)
    lines, size = _header_lines(path, start)
    if lines[:1] != ["ply"]:
        raise FileError(path, "the first line of a PLY file is 'ply'")
    order, elements = "", []
    for line in lines[1:]:
        words = line.split()
        if not words or words[0] in ("comment", "obj_info"):
            continue
        if words[0] == "format":
            if len(words) != 3 or words[1] not in _ORDERS or words[2] != "1.0" or order:
                raise FileError(path, f"bad or repeated format line {line!r}")
            order = _ORDERS[words[1]]
        elif words[0] == "element":
            elements.append(_element(path, line, words))
        elif words[0] == "property" and elements:
            elements[-1] = _with_property(path, line, words, elements[-1])
        else:
            raise FileError(path, f"unexpected header line {line!r}")
    if not order:
        raise FileError(path, "the header has no format line")
    names = [element.name for element in elements]
    if names.count("vertex") != 1:
        raise FileError(
            path, f"one element must be called vertex; found {', '.join(names) or 'none'}"
        )
    at = names.index("vertex")
    for element in elements[: at + 1]:
        if element.has_list:
            raise FileError(path, f"a list property in element {element.name} is not supported")
    vertex = elements[at]
    kinds = {name.lower(): kind for name, kind in vertex.properties}
    for axis in "xyz":
        if kinds.get(axis, "i")[0] != "f":
            raise FileError(path, f"vertices need a float property {axis}")
    return PlyHeader(path, order, tuple(elements[:at]), vertex, at == len(elements) - 1, size)


def _header_lines(path: Path, start: bytes) -> tuple[list[str], int]:
    for ending in (b"end_header\n", b"end_header\r\n"):
        at = start.find(ending)
        if at >= 0:
            size = at + len(ending)
            break
    else:
        raise FileError(path, f"no end_header line in the first {_HEADER_LIMIT} bytes")
    try:
        return start[:at].decode("ascii").splitlines(), size
    except UnicodeDecodeError as error:
        raise FileError(path, f"the header is not ascii text ({error})") from error


def _element(path: Path, line: str, words: list[str]) -> _Element:
    if len(words) != 3 or not words[2].isdecimal() or len(words[2]) > 18:
        raise FileError(path, f"bad element line {line!r}")
    return _Element(words[1], int(words[2]), (), False)


def _with_property(path: Path, line: str, words: list[str], element: _Element) -> _Element:
    if len(words) == 5 and words[1] == "list" and words[2] in _TYPES and words[3] in _TYPES:
        return _Element(element.name, element.count, element.properties, True)
    if len(words) != 3 or words[1] not in _TYPES:
        raise FileError(path, f"bad property line {line!r}")
    if words[2] in dict(element.properties):
        raise FileError(path, f"property {words[2]} occurs twice")
    properties = (*element.properties, (words[2], _TYPES[words[1]]))
    return _Element(element.name, element.count, properties, element.has_list)


def _binary(header: PlyHeader) -> StoredRows:
    stamp = stamp_of(header.path)
    skip = sum(e.count * e.dtype(header.order).itemsize for e in header.before)
    kind = header.vertex.dtype(header.order)
    end, held = skip + header.vertex.count * kind.itemsize, stamp[0] - header.size
    if held < end:
        raise FileError(
            header.path,
            f"truncated: {header.vertex.count} vertices need {end} bytes after the header, "
            f"the file has {held}",
        )
    if header.is_last and held > end:
        raise FileError(header.path, f"{held - end} bytes after the last vertex")
    return StoredRows(header.path, header.size + skip, kind, header.vertex.count, (), stamp)


def _ascii(header: PlyHeader, content: bytes) -> np.ndarray:
    skip = sum(element.count for element in header.before)
    at = header.size
    for _ in range(min(skip, len(content))):
        at = content.find(b"\n", at) + 1
        if not at:
            raise FileError(header.path, f"truncated: {skip} lines come before the vertices")
    return number_rows(
        header.path,
        content[at:],
        header.vertex.dtype("="),
        header.vertex.count,
        content.count(b"\n", 0, at) + 1,
        header.is_last,
    )
