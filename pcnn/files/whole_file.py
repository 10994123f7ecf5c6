"""Files that appear whole or not at all, PLY files so, locks, and the folder of programs."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

SUFFIX = ".part"  # of a file that is being written; what has it after a kill is garbage


@contextmanager
def whole_file(path: Path, durable: bool = False) -> Iterator[IO[bytes]]:
    """Open a temporary file beside ``path``; it takes that name when the block ends well.

    Missing folders are made. When the block raises, nothing is left behind. A rename inside a
    folder is atomic, so at every instant ``path`` is the previous file or the new one, also when
    the process is killed.

    A device or a pipe is written through, once the block has ended: it is never replaced.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        with tempfile.NamedTemporaryFile() as held:
            yield held
            held.seek(0)
            with path.open("wb") as device:
                shutil.copyfileobj(held, device)
        return
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}{SUFFIX}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("x+b") as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(part, path)
        if durable:  # the rename, too, which lives in the folder
            handle = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
    finally:
        part.unlink(missing_ok=True)


def drop_parts(folder: Path, name: str = "*") -> None:
    """Remove what killed writers of ``folder/name`` left; no other may be writing."""
    for part in folder.glob(f".{name}.{'[0-9a-f]' * 32}{SUFFIX}"):
        part.unlink(missing_ok=True)


def user_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock file, made with its folder where it is missing; others that name it wait."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


_TYPES = {"i1": "char", "u1": "uchar", "i2": "short", "u2": "ushort", "i4": "int", "u4": "uint"}
_TYPES |= {"f4": "float", "f8": "double"}
_DIGITS = 20


def write_ply(path: Path, parts: Iterable[np.ndarray], dtype: np.dtype, comment: str = "") -> None:
    """Write vertices, whole or not at all; a part is in memory at a time."""
    import numpy as np  # which those who only write text do without

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
