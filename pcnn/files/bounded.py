"""Files read within bounds, and one error for all that can go wrong with one."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
    except UserError as error:
        raise FileError(path, str(error).removeprefix(f"{path}: ")) from error
    except FileNotFoundError as error:
        raise MissingFileError(path, "no such file") from error
    except OSError as error:
        if error.errno in _FULL:
            raise
        if error.errno is None:  # a library's own, not the system's
            raise FileError(path, f"not a whole {kind} ({_words(error)})") from error
        raise FileError(path, f"cannot be read ({error.strerror})") from error
    except MemoryError as error:
        raise FileError(path, "reading it needs more memory than there is") from error
    except RecursionError as error:
        raise FileError(path, f"not a {kind}: it is nested too deeply") from error
    except Exception as error:
        text = str(error)
        if text.startswith((f"{path}: ", f"{path}, ")):
            raise FileError(path, text[len(str(path)) + 2 :]) from error
        raise FileError(path, f"not a whole {kind} ({_words(error)})") from error


def _words(error: Exception) -> str:
    """A library's words in one line; its kind of error where these alone say little."""
    text = " ".join(str(error).split())[:_SHOWN]
    own = type(error).__name__
    return text if isinstance(error, ValueError) and text else f"{own}: {text}" if text else own
