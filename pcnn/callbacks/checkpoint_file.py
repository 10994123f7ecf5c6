"""Reading a checkpoint: whole, of plain content, or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pcnn.callbacks.checksum import is_whole
from pcnn.callbacks.loaded_config import loaded_config
from pcnn.errors import FileError, MissingFileError, first_line
from pcnn.files.pickles import check_names


class CheckpointError(FileError):
    """A file is no whole checkpoint."""


def read_checkpoint(path: str | Path, map_location: Any = "cpu", mmap: bool = True) -> Any:
    """What a checkpoint holds, its checksum compared.

    Args:
        path: a file that `torch.save` wrote.
        map_location: as of `torch.load`.
        mmap: leave tensors on the disk until they are used.

    Raises:
        FileNotFoundError: there is no such file.
        CheckpointError: it is cut short, a bit of it has changed, or it is no checkpoint.
    """
    path = Path(path)
    if not path.is_file():
        raise MissingFileError(path, "no such checkpoint")
    if not is_whole(path):
        raise CheckpointError(
            path,
            "not a whole checkpoint: its bytes are not those that were written, it is cut short or "
            "a bit of it has flipped; copy it again, or take another one",
        )
    try:
        check_names(path)
        content = torch.load(path, map_location=map_location, weights_only=True, mmap=mmap)
    except Exception as error:  # torch and pickle raise errors of every kind for strange bytes
        raise CheckpointError(
            path, f"not a whole checkpoint ({first_line(error)[:300]}); take another one"
        ) from error
    if not isinstance(content, dict):
        raise CheckpointError(path, "not a checkpoint of a run, it holds no dictionary")
    return content


def load_config(path: str | Path) -> dict[str, Any]:
    """Read the resolved configuration that a checkpoint carries.

    Args:
        path: a file written by `Checkpoint`.

    Raises:
        FileNotFoundError: there is no such file.
        CheckpointError: it is damaged, or carries no configuration.
        UserError: the configuration holds more than resolved values.
    """
    checkpoint = read_checkpoint(path)
    if not isinstance(checkpoint.get("pcnn_config"), dict):
        raise CheckpointError(
            Path(path), "it carries no 'pcnn_config'; it was not written by a pcnn run"
        )
    return loaded_config(checkpoint["pcnn_config"], path)


def load_weights(path: str | Path) -> dict[str, Tensor]:
    """Weights of the network in a checkpoint, on the CPU, by their names in the network.

    Args:
        path: a file written by `Checkpoint`.

    Raises:
        FileNotFoundError: there is no such file.
        CheckpointError: it is damaged, or carries no weights.
    """
    state = read_checkpoint(path, mmap=False).get("state_dict")
    if not isinstance(state, dict) or not all(
        isinstance(name, str) and isinstance(value, Tensor) for name, value in state.items()
    ):
        raise CheckpointError(path, "not a checkpoint of a run, it holds no weights by name")
    return {
        name.removeprefix("net."): value for name, value in state.items() if name.startswith("net.")
    }
