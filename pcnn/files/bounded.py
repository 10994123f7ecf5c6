"""Files read within bounds, arrays among them, and one error for all that can go wrong with one.

`numpy.load` allocates what a header claims; here the claim is held against the bytes of the file.
"""

from __future__ import annotations

import errno
import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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


def read_npy(path: Path) -> np.ndarray:
    """The array of a file, which is mapped first: what its header claims allocates nothing."""
    with named(path, ".npy file"):
        check_size(path, path.stat().st_size)
        try:
            held = np.load(path, mmap_mode="r")
        except MemoryError as error:  # of Python's parser
            raise FileError(path, "not a whole .npy file: its header cannot be read") from error
        if not isinstance(held, np.memmap) or held.offset + held.nbytes != path.stat().st_size:
            raise FileError(path, "not a whole .npy file: its bytes are not those of one array")
        return np.array(held)


def forget_pages(*arrays: np.ndarray) -> None:
    """Let pages of mapped files count as memory of this process no more; the values stay.

    Arrays in memory are left alone. None may be mapped by copy on write, in mode ``c``.
    """
    for values in arrays:
        base: object = values
        while isinstance(base, np.ndarray):
            base = base.base
        if isinstance(base, mmap.mmap):
            base.madvise(mmap.MADV_DONTNEED)
