"""Arrays in NumPy's own formats, ``.npy`` and ``.npz``, checked before anything is allocated.

`numpy.load` allocates what a header claims, and lets errors of Python's own parser through. Here
the header is checked against the bytes of the file before anything is allocated.

Source: NumPy's format specification (numpy.lib.format), versions 1.0 to 3.0.
"""

from __future__ import annotations

import ast
import io
import zipfile
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from pcnn.errors import FileError
from pcnn.files.bounded import LIMIT, check_size, named
from pcnn.files.rows import HeldRows, Rows, StoredRows, stamp_of

_MAGIC = b"\x93NUMPY"
_HEADER = 1 << 14  # bytes; NumPy itself writes 128 for an array without fields
_DIMENSIONS = 32


def read_npy(path: Path, limit: float = LIMIT) -> np.ndarray:
    """The array of an ``.npy`` file.

    Args:
        path: the file.
        limit: largest size of the array [GiB].

    Raises:
        MissingFileError: no such file.
        FileError: a header that breaks the format, an array of Python objects, or another number of
            bytes than the header announces.
    """
    with named(path, ".npy file"), path.open("rb") as file:
        return read_array(file, path.stat().st_size, path, limit)


def read_array(file: BinaryIO, size: int, path: Path, limit: float = LIMIT) -> np.ndarray:
    """An array in NumPy's format from an open file.

    Args:
        file: at the start of the array.
        size: bytes of header and numbers that the file holds.
        path: the file, for errors.
        limit: largest size of the array [GiB].

    Raises:
        FileError: as `read_npy`.
    """
    kind, shape, fortran, begin = _announced(file, size, path)
    held = size - begin
    count = prod(shape)
    check_size(path, held, limit, "its array")
    values = np.empty(count, kind)
    target = values.view(np.uint8) if count else np.empty(0, np.uint8)
    at = 0
    while at < held:
        block = file.read(min(held - at, 1 << 24))
        if not block:
            raise FileError(path, f"not a whole .npy file: {held - at} bytes are missing")
        target[at : at + len(block)] = np.frombuffer(block, np.uint8)
        at += len(block)
    if file.read(1):  # a member of an archive that is longer than the archive says
        raise FileError(path, "there is more behind its array")
    return values.reshape(shape[::-1]).T if fortran else values.reshape(shape)


def open_npy(path: Path, limit: float = LIMIT) -> Rows:
    """The array of an ``.npy`` file by its rows, read in ranges where they lie one after another.

    Args:
        path: the file.
        limit: largest size of an array in Fortran's order, which is held whole [GiB].

    Raises:
        MissingFileError: no such file.
        FileError: as `read_npy`.
    """
    with named(path, ".npy file"), path.open("rb") as file:
        stamp = stamp_of(file.fileno())
        kind, shape, fortran, begin = _announced(file, stamp[0], path)
    if fortran or not shape:
        return HeldRows(np.atleast_1d(read_npy(path, limit)))
    return StoredRows(path, begin, kind, shape[0], shape[1:], stamp)


def _announced(
    file: BinaryIO, size: int, path: Path
) -> tuple[np.dtype, tuple[int, ...], bool, int]:
    """Type, shape and order of an array, and the bytes in front of its numbers, by its header."""
    start = file.read(8)
    if start[:4] == b"PK\x03\x04":
        raise FileError(path, "an .npy file holds one array; this is an archive")
    if len(start) < 8 or start[:6] != _MAGIC or start[6] not in (1, 2, 3):
        raise FileError(path, "not a whole .npy file: it does not start as one")
    width = 2 if start[6] == 1 else 4
    length = int.from_bytes(file.read(width), "little")
    if length > _HEADER:
        raise FileError(path, f"the .npy header has {length} bytes, {_HEADER} at most are taken")
    text = file.read(length)
    if len(text) < length:
        raise FileError(path, "not a whole .npy file: its header is cut off")
    kind, shape, fortran = _parsed(text.decode("utf-8" if start[6] == 3 else "latin-1"), path)
    held = size - len(start) - width - length
    count = prod(shape)
    if count * kind.itemsize != held:
        raise FileError(
            path,
            f"not a whole .npy file: {kind} {list(shape)} needs {count * kind.itemsize} bytes "
            f"behind the header, the file has {held}",
        )
    return kind, shape, fortran, size - held


def _parsed(text: str, path: Path) -> tuple[np.dtype, tuple[int, ...], bool]:
    """Type, shape and order of an array by its header."""
    try:
        header = ast.literal_eval(text.strip())
        ordered = isinstance(header, dict) and set(header) == {"descr", "fortran_order", "shape"}
    except Exception as error:  # Python's parser has many: SyntaxError, MemoryError, ...
        raise FileError(path, f"unusable .npy header ({type(error).__name__})") from error
    if not ordered:
        raise FileError(path, "the .npy header must hold descr, fortran_order and shape")
    shape: Any = header["shape"]
    if (
        not isinstance(shape, tuple)
        or len(shape) > _DIMENSIONS
        or not all(type(n) is int and 0 <= n < 1 << 62 for n in shape)
    ):
        raise FileError(path, f"the .npy header has no shape: {str(shape)[:80]}")
    if type(header["fortran_order"]) is not bool:
        raise FileError(path, "fortran_order of the .npy header must be True or False")
    try:
        kind = np.lib.format.descr_to_dtype(header["descr"])
    except Exception as error:
        raise FileError(path, f"unknown type {str(header['descr'])[:80]!r}") from error
    if kind.hasobject:
        raise FileError(path, "it holds Python objects, which are never read")
    if kind.itemsize == 0:
        raise FileError(path, f"its type {kind} has no bytes")
    return kind, shape, header["fortran_order"]


#: Deflate packs 258 bytes into 2 bits at best.
_RATIO = 1032
_SLACK = 1 << 10
_STORED_OR_DEFLATED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED = 1


def read_npz(
    path: Path, names: Sequence[str] | None = None, limit: float = LIMIT
) -> dict[str, np.ndarray]:
    """Arrays of an ``.npz`` file by name.

    Args:
        path: the file.
        names: which are read, of those that are there; None reads all.
        limit: largest size of all of them [GiB].

    Raises:
        MissingFileError: no such file.
        FileError: no whole archive, a member with an unsafe name, of Python objects, or that claims
            to unpack to more than its bytes can hold; or as `pcnn.files.arrays.read_array`.
    """
    with named(path, ".npz file"), zipfile.ZipFile(path) as archive:
        return _arrays(archive, path, path.stat().st_size, names, limit)


def read_npz_bytes(content: bytes, path: Path, limit: float = LIMIT) -> dict[str, np.ndarray]:
    """Arrays of an ``.npz`` file that was read already; as `read_npz`.

    Args:
        content: the file's bytes.
        path: where it comes from, for errors.
        limit: largest size of all arrays [GiB].
    """
    with named(path, ".npz file"), zipfile.ZipFile(io.BytesIO(content)) as archive:
        return _arrays(archive, path, len(content), None, limit)


def _arrays(
    archive: zipfile.ZipFile, path: Path, size: int, names: Sequence[str] | None, limit: float
) -> dict[str, np.ndarray]:
    members = _members(archive, path, size)
    wanted = [name for name in (members if names is None else names) if name in members]
    check_size(path, sum(members[n].file_size for n in wanted), limit, "what it unpacks to")
    found = {}
    for name in wanted:
        with archive.open(members[name]) as file:
            found[name] = read_array(
                cast(BinaryIO, file),
                members[name].file_size,
                path,
                limit,
            )
    return found


def names_in(path: Path) -> list[str]:
    """Names of the arrays of an ``.npz`` file.

    Raises:
        FileError: as `read_npz`.
    """
    with named(path, ".npz file"), zipfile.ZipFile(path) as archive:
        return list(_members(archive, path, path.stat().st_size))


def _members(archive: zipfile.ZipFile, path: Path, size: int) -> dict[str, zipfile.ZipInfo]:
    found: dict[str, zipfile.ZipInfo] = {}
    for member in archive.infolist():
        name = member.filename.removesuffix(".npy")
        if not member.filename.endswith(".npy") or "/" in name or "\\" in name or "\0" in name:
            raise FileError(path, f"member {member.filename[:80]!r} is no array")
        if name in found:
            raise FileError(path, f"array {name[:80]!r} is there twice")
        if member.compress_type not in _STORED_OR_DEFLATED or member.flag_bits & _ENCRYPTED:
            raise FileError(path, f"array {name[:80]!r} must be stored or deflated, not encrypted")
        ratio = 1 if member.compress_type == zipfile.ZIP_STORED else _RATIO
        if member.compress_size > size or member.file_size > ratio * member.compress_size + _SLACK:
            raise FileError(
                path,
                f"array {name[:80]!r} claims {member.file_size} bytes out of "
                f"{member.compress_size}, more than they can hold",
            )
        found[name] = member
    return found
