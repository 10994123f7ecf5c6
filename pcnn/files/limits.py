"""How large a file, and what it unpacks to, may be."""

from __future__ import annotations

from pathlib import Path

from pcnn.errors import FileError

GIB = 1 << 30

#: Largest size of a file's numbers in memory, and of the file itself [GiB], unless told otherwise.
LIMIT = 8.0

#: Largest text file that lists things: poses, pairs, classes, a configuration [bytes].
TEXT = 64 << 20

#: Largest YAML file, which takes ten seconds to read [bytes].
YAML = 1 << 20


def check_size(path: Path, size: int, limit: float = LIMIT, what: str = "the file") -> None:
    """Refuse what would take more memory than the limit.

    Args:
        path: the file.
        size: bytes it takes.
        limit: most of them [GiB].
        what: takes them, for the message.

    Raises:
        FileError: it is larger.
    """
    if size > limit * GIB:
        raise FileError(
            path,
            f"{what} takes {size / GIB:,.1f} GiB, the limit is {limit:g} GiB "
            "(raise it with --max-gib or dataset.max_gib)",
        )


def read_whole(path: Path, limit: float = LIMIT) -> bytes:
    """All bytes of a file.

    Raises:
        FileError: the file is larger than the limit [GiB].
    """
    check_size(path, path.stat().st_size, limit)
    return path.read_bytes()
