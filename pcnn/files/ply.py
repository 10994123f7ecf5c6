"""Vertices as binary little-endian PLY files, part by part."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from pcnn.files.whole_file import whole_file

_TYPES = {"i1": "char", "u1": "uchar", "i2": "short", "u2": "ushort", "i4": "int", "u4": "uint"}
_TYPES |= {"f4": "float", "f8": "double"}
_DIGITS = 20


def write_ply(path: Path, parts: Iterable[np.ndarray], dtype: np.dtype, comment: str = "") -> None:
    """Write vertices, whole or not at all; a part is in memory at a time."""
    kinds = {name: dtype[name].str[1:] for name in dtype.names or ()}
    other = [name for name, kind in kinds.items() if kind not in _TYPES]
    if other:
        raise ValueError(f"{path}: {other[0]} is {dtype[other[0]]}, no type of PLY files")
    if "\n" in comment or not comment.isascii():
        raise ValueError(f"a ply comment is one line of ASCII text, got {comment!r}")
    packed = np.dtype([(name, f"<{kind}") for name, kind in kinds.items()])

    def header(count: int) -> bytes:
        lines = ["ply", "format binary_little_endian 1.0"]
        lines += [f"comment {comment}"] if comment else []
        # the number is known at the end: the header is as long for every number
        lines += [f"comment {'-' * (_DIGITS - len(str(count)))}", f"element vertex {count}"]
        lines += [f"property {_TYPES[kind]} {name}" for name, kind in kinds.items()]
        return ("\n".join([*lines, "end_header"]) + "\n").encode("ascii")

    count = 0
    with whole_file(path) as file:
        file.write(header(0))
        for vertices in parts:
            file.write(vertices.astype(packed, copy=False).data)
            count += len(vertices)
        file.seek(0)
        file.write(header(count))
