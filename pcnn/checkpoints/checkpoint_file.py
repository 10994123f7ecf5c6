"""Checkpoints of runs: written whole or not at all, checked, and read as plain values alone."""

from __future__ import annotations

import functools
import pickle
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
    """Content of a checkpoint, its sums compared."""
    path = Path(path)
    if not path.is_file():
        raise MissingFileError(path, "no such checkpoint")
    if is_tensors(path):
        return read_exported(path)
    found = path.stat()
    if not _is_whole(path, found.st_ino, found.st_size, found.st_mtime_ns):
        raise CheckpointError(
            path, "not a whole checkpoint: cut short, or a bit has flipped; copy it again"
        )
    try:
        check_names(path)
        content = torch.load(path, map_location=map_location, weights_only=True, mmap=mmap)
    except Exception as error:  # of strange bytes torch and pickle raise errors of every kind
        # whose words may be the advice to switch the protection off
        more = "" if isinstance(error, pickle.UnpicklingError) else f" ({first_line(error)[:300]})"
        rule = f"not a whole checkpoint, or it holds more than tensors and plain values{more}"
        raise CheckpointError(path, rule) from error
    if not isinstance(content, dict):
        raise CheckpointError(path, "not a checkpoint of a run, it holds no dictionary")
    return content


@functools.lru_cache(maxsize=16)
def _is_whole(path: Path, inode: int, size: int, changed: int) -> bool:
    """True where the sums that torch writes are right; once, as long as a file stays the same."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.testzip() is None
    except Exception:  # names, flags and lengths that no archive has
        return False


def write_whole(checkpoint: dict[str, Any], path: Path) -> None:
    """Save a checkpoint under `path`, entirely or not at all."""
    with whole_file(path, durable=True) as file:
        torch.save(checkpoint, file)


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
            raise CheckpointError(self.path, "not a checkpoint of a run, it has no 'pcnn_config'")
        return read_stored(self.content["pcnn_config"], self.path)

    @property
    def weights(self) -> dict[str, Tensor]:
        """Weights of the network, by their names in the network."""
        state = self.content.get("state_dict")
        if not isinstance(state, dict) or not all(
            isinstance(name, str) and isinstance(value, Tensor) for name, value in state.items()
        ):
            raise CheckpointError(self.path, "not a checkpoint of a run, it has no weights by name")
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
