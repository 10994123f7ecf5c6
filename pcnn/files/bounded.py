"""Files read within bounds, arrays among them, and one error for all that can go wrong with one.

`numpy.load` allocates what a header claims; here the claim is held against the bytes of the file.
"""

from __future__ import annotations

import errno
import io
import mmap
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import IO

import numpy as np

from pcnn.errors import FileError, MissingFileError, MissingPackageError, UserError

GIB = 1 << 30

#: Largest size of a file's numbers in memory, and of the file itself [GiB].
LIMIT = 8.0

#: Largest text file that lists things: poses, pairs, classes, a configuration [bytes].
TEXT = 64 << 20

#: Largest YAML file, which takes ten seconds to read [bytes].
YAML = 1 << 20


def check_size(path: object, size: int, what: str = "the file") -> None:
    """Refuse what would take more memory than the limit."""
    if size > LIMIT * GIB:
        raise FileError(path, f"{what} takes {size / GIB:,.1f} GiB, the limit is {LIMIT:g} GiB")


def read_whole(path: Path) -> bytes:
    check_size(path, path.stat().st_size)
    return path.read_bytes()


#: Characters of a library's own words that are shown.
_SHOWN = 300
#: A full disk is no fault of the file that is read.
_FULL = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def named(path: object, kind: str) -> Iterator[None]:
    """Let every error of the block name the file."""
    try:
        yield
    except (FileError, MissingPackageError):
        raise
    except FileNotFoundError as error:
        raise MissingFileError(path, "no such file") from error
    except MemoryError as error:
        raise FileError(path, "reading it needs more memory than there is") from error
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:  # else a library's own
            if error.errno in _FULL:
                raise
            raise FileError(path, f"cannot be read ({error.strerror})") from error
        text = " ".join(str(error).split())[:_SHOWN]
        if isinstance(error, UserError) or text.startswith((f"{path}: ", f"{path}, ")):
            raise FileError(path, str(error).removeprefix(str(path)).lstrip(":, ")) from error
        if not isinstance(error, ValueError) or not text:  # its words alone say little
            text = f"{type(error).__name__} {text}"
        raise FileError(path, f"not a whole {kind} ({text.strip()})") from error


_NPY_HEADER = 1 << 14  # bytes; NumPy itself writes 128 for an array without fields


def stamp_of(file: int | Path) -> tuple[int, int]:
    found = os.stat(file)
    return found.st_size, found.st_mtime_ns


def read_npy(path: Path) -> np.ndarray:
    with named(path, ".npy file"), path.open("rb") as file:
        size = path.stat().st_size
        check_size(path, size)
        dtype, shape, fortran, start = _announced(file, size, path)
        return _shaped(np.fromfile(path, dtype, prod(shape), offset=start), shape, fortran)


def header_of(path: Path) -> tuple[np.dtype, tuple[int, ...]]:
    """Type and shape of the array of an ``.npy`` file."""
    with named(path, ".npy file"), path.open("rb") as file:
        return _announced(file, path.stat().st_size, path)[:2]


def _announced(
    file: IO[bytes], size: int, path: object
) -> tuple[np.dtype, tuple[int, ...], bool, int]:
    """Type, shape and order of an array, and the bytes in front of its numbers, by its header."""
    start = io.BytesIO(file.read(_NPY_HEADER))
    try:
        # version 3 differs from 2 in the encoding of names alone
        read = [np.lib.format.read_array_header_1_0, np.lib.format.read_array_header_2_0]
        major, _ = np.lib.format.read_magic(start)
        shape, fortran, dtype = read[major > 1](start)
    except Exception as error:  # of Python's parser, too: SyntaxError, MemoryError, ...
        words = f"{type(error).__name__}: {str(error)[:80]}"
        raise FileError(path, f"not a whole .npy file ({words})") from error
    if dtype.hasobject or not dtype.itemsize or any(type(n) is bool or n < 0 for n in shape):
        raise FileError(path, f"no array of numbers: {str(dtype)[:80]} {list(shape)}")
    needed = prod(shape) * dtype.itemsize
    if needed != size - start.tell():
        told = f"{str(dtype)[:80]} {list(shape)} needs {needed} bytes, not {size - start.tell()}"
        raise FileError(path, f"not a whole .npy file: {told}")
    return dtype, shape, fortran, start.tell()


def _shaped(values: np.ndarray, shape: tuple[int, ...], fortran: bool) -> np.ndarray:
    return values.reshape(shape[::-1]).T if fortran else values.reshape(shape)


#: Deflate packs 258 bytes into 2 bits at best.
_RATIO, _SLACK = 1032, 1 << 10
_ENCRYPTED = 1


def read_npz(file: Path | IO[bytes], origin: Path | None = None) -> dict[str, np.ndarray]:
    """Arrays of an ``.npz`` file by name; of an open one, `origin` is named in errors."""
    path = file if isinstance(file, Path) else origin
    found: dict[str, np.ndarray] = {}
    with named(path, ".npz file"), zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        check_size(path, sum(member.file_size for member in members), "what it unpacks to")
        for member in members:
            name = member.filename.removesuffix(".npy")
            # what is read is bounded by what the file holds, whatever it claims
            packed = member.compress_type == zipfile.ZIP_DEFLATED
            most = (_RATIO if packed else 1) * member.compress_size + _SLACK
            if (
                name in found
                or not member.filename.endswith(".npy")
                or not (packed or member.compress_type == zipfile.ZIP_STORED)
                or member.flag_bits & _ENCRYPTED
                or member.file_size > most
            ):
                raise FileError(path, f"member {member.filename[:80]!r} is no plain array")
            content = archive.read(member)
            dtype, shape, fortran, start = _announced(io.BytesIO(content), len(content), path)
            values = np.frombuffer(bytearray(content), dtype, prod(shape), start)
            found[name] = _shaped(values, shape, fortran)
    return found


def forget_pages(*arrays: np.ndarray | None) -> None:
    """Let pages of mapped files that were read or written count as memory of this process no more.

    The values stay what they are, in the file. Arrays in memory, those mapped by copy on write
    (mode ``c``), whose changes are in no file, and None are left alone.
    """
    for values in arrays:
        base: object = values
        private = False
        while isinstance(base, np.ndarray):
            private |= isinstance(base, np.memmap) and base.mode == "c"
            base = base.base
        if isinstance(base, mmap.mmap) and not private and hasattr(mmap, "MADV_DONTNEED"):
            base.madvise(mmap.MADV_DONTNEED)
