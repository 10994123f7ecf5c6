"""A checksum at the end of a checkpoint: a bit that flips on a disk or on the way is noticed.

A checkpoint is a zip file, and a zip file may end in a comment. It is ``pcnn crc32 `` and eight
hexadecimal digits, the CRC-32 of every byte before the digits. A CRC notices every single flipped
bit and every run of flips up to 32 bits long. `torch.load` passes the comment over and checks
nothing itself.
"""

from __future__ import annotations

import functools
import os
import struct
import zlib
from pathlib import Path
from typing import BinaryIO

MARK = b"pcnn crc32 "
_LENGTH = len(MARK) + 8
_END = b"PK\x05\x06"  # begins the last record of a zip file
_END_SIZE = 22  # without a comment
_CHUNK = 1 << 20


def add_checksum(file: BinaryIO) -> None:
    """Put the checksum at the end of a zip file that has no comment.

    Args:
        file: open for reading and writing, complete.

    Raises:
        ValueError: its end is not that of a zip file without a comment.
    """
    file.seek(-_END_SIZE, os.SEEK_END)
    end = file.read(_END_SIZE)
    if end[:4] != _END or end[-2:] != b"\0\0":
        raise ValueError("not a zip file without a comment")
    file.seek(-2, os.SEEK_END)
    file.write(struct.pack("<H", _LENGTH) + MARK)
    size = file.seek(0, os.SEEK_END)
    file.write(b"%08x" % _sum(file, size))


def is_whole(path: Path) -> bool:
    """Whether a file has the bytes that were written.

    A zip file without a checksum, as earlier versions wrote, counts as whole where its end is.
    A file is read once, as long as it stays the same.
    """
    found = path.stat()
    return _is_whole(path, found.st_ino, found.st_size, found.st_mtime_ns)


@functools.lru_cache(maxsize=16)
def _is_whole(path: Path, inode: int, size: int, changed: int) -> bool:
    with path.open("rb") as file:
        file.seek(max(size - _LENGTH, 0))
        mark = file.read(_LENGTH)
        if mark[:-8] == MARK:
            return mark[-8:] == b"%08x" % _sum(file, size - 8)
        file.seek(max(size - _END_SIZE, 0))
        end = file.read(_END_SIZE)
        return end[:4] == _END and end[-2:] == b"\0\0"


def _sum(file: BinaryIO, size: int) -> int:
    """CRC-32 of the first `size` bytes; leaves the file behind them."""
    file.seek(0)
    total = 0
    while size > 0:
        chunk = file.read(min(_CHUNK, size))
        if not chunk:
            break
        total = zlib.crc32(chunk, total)
        size -= len(chunk)
    return total
