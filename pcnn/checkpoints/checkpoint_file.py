"""Checkpoint files: written whole with a checksum, read as plain content or not at all.

A checkpoint is a zip file, and a zip file may end in a comment. It is ``pcnn crc32 `` and eight
hexadecimal digits, the CRC-32 of every byte before the digits. A CRC notices every single flipped
bit and every run of flips up to 32 bits long. `torch.load` passes the comment over and checks
nothing itself.
"""

from __future__ import annotations

import functools
import os
import pickle
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from pcnn.checkpoints.exported_file import NET, read_exported
from pcnn.config import read_stored
from pcnn.errors import FileError, MissingFileError, first_line
from pcnn.files.pickles import check_names
from pcnn.files.tensors import is_tensors
from pcnn.files.whole_file import whole_file


class CheckpointError(FileError):
    """A file is no whole checkpoint."""


def read_checkpoint(path: str | Path, map_location: Any = "cpu", mmap: bool = True) -> Any:
    """Content of a checkpoint, its checksum compared."""
    path = Path(path)
    if not path.is_file():
        raise MissingFileError(path, "no such checkpoint")
    if is_tensors(path):
        return read_exported(path)
    if not is_whole(path):
        raise CheckpointError(
            path,
            "not a whole checkpoint: its bytes are not those that were written, it is cut short or "
            "a bit of it has flipped; copy it again, or take another one",
        )
    try:
        check_names(path)
        content = torch.load(path, map_location=map_location, weights_only=True, mmap=mmap)
    except pickle.UnpicklingError as error:  # torch advises to switch the protection off
        raise CheckpointError(
            path, "not a whole checkpoint, or it holds more than tensors and plain values"
        ) from error
    except Exception as error:  # torch and pickle raise errors of every kind for strange bytes
        raise CheckpointError(
            path, f"not a whole checkpoint ({first_line(error)[:300]}); take another one"
        ) from error
    if not isinstance(content, dict):
        raise CheckpointError(path, "not a checkpoint of a run, it holds no dictionary")
    return content


@dataclass(frozen=True)
class RunCheckpoint:
    """A checkpoint of a run, read once."""

    path: Path  # its file, written by pcnn.callbacks.Checkpoint or by pcnn export
    content: Mapping[str, Any] = field(repr=False)  # what it holds

    @classmethod
    def read(cls, path: str | Path, mmap: bool = True) -> RunCheckpoint:
        """Read a file."""
        return cls(Path(path), read_checkpoint(path, mmap=mmap))

    @property
    def config(self) -> dict[str, Any]:
        """The resolved configuration."""
        if not isinstance(self.content.get("pcnn_config"), dict):
            raise CheckpointError(
                self.path, "it carries no 'pcnn_config'; it was not written by a pcnn run"
            )
        return read_stored(self.content["pcnn_config"], self.path)

    @property
    def weights(self) -> dict[str, Tensor]:
        """Weights of the network, by their names in the network."""
        state = self.content.get("state_dict")
        if not isinstance(state, dict) or not all(
            isinstance(name, str) and isinstance(value, Tensor) for name, value in state.items()
        ):
            raise CheckpointError(
                self.path, "not a checkpoint of a run, it holds no weights by name"
            )
        return {
            name.removeprefix(NET): value for name, value in state.items() if name.startswith(NET)
        }

    @property
    def steps(self) -> int:
        """Optimiser steps behind the weights."""
        steps = self.content.get("global_step")
        if not isinstance(steps, int):
            raise CheckpointError(self.path, "not a checkpoint of a run, it tells no step")
        return steps

    @property
    def is_best(self) -> bool:
        """True where it holds the best state of its run on validation."""
        states = self.content.get("callbacks", {}).values()
        return any(
            isinstance(state, Mapping) and state.get("best_step") == self.steps for state in states
        )


def load_config(path: str | Path) -> dict[str, Any]:
    """The resolved configuration of a checkpoint (`RunCheckpoint.config`)."""
    return RunCheckpoint.read(path).config


def load_weights(path: str | Path) -> dict[str, Tensor]:
    """Weights of the network in a checkpoint, on the CPU (`RunCheckpoint.weights`)."""
    return RunCheckpoint.read(path, mmap=False).weights


def write_whole(checkpoint: dict[str, Any], path: Path) -> None:
    """Save a checkpoint with its checksum under `path`, entirely or not at all.

    At every instant `path` is either the previous file or the new one, also when the process is
    killed or the power fails.
    """
    with whole_file(path, durable=True) as file:
        torch.save(checkpoint, file)
        add_checksum(file)


MARK = b"pcnn crc32 "
_LENGTH = len(MARK) + 8
_END = b"PK\x05\x06"  # begins the last record of a zip file
_END_SIZE = 22  # without a comment
_CHUNK = 1 << 20


def add_checksum(file: IO[bytes]) -> None:
    """Put the checksum at the end of a zip file that has no comment."""
    file.seek(-_END_SIZE, os.SEEK_END)
    end = file.read(_END_SIZE)
    if end[:4] != _END or end[-2:] != b"\0\0":
        raise ValueError("not a zip file without a comment")
    file.seek(-2, os.SEEK_END)
    file.write(struct.pack("<H", _LENGTH) + MARK)
    size = file.seek(0, os.SEEK_END)
    file.write(b"%08x" % _sum(file, size))


def is_whole(path: Path) -> bool:
    """True where a file has the bytes that were written.

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


def _sum(file: IO[bytes], size: int) -> int:
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
