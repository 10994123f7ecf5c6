"""Files that torch wrote: checkpoints, and arrays with the suffix ``.pth``."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path
from typing import Any

import torch

from pcnn.errors import FileError
from pcnn.files.limits import LIMIT, check_size
from pcnn.files.named import named
from pcnn.files.pickled_arrays import STAND_INS, with_arrays

_VALUES = 1 << 24


def read_checkpoint(path: Path | str) -> dict[str, Any]:
    """Entries of a checkpoint: tensors and plain values; nothing of the file is run.

    Tensors lie in the file until they are used, so memory follows its size.

    Raises:
        MissingFileError: no such file.
        FileError: no checkpoint, a torn one, or one that holds more than this.
    """
    path = Path(path)
    with named(path, "checkpoint"):
        content = _loaded(path, [])
        if not isinstance(content, dict):
            raise FileError(path, f"a checkpoint holds entries by name, not {type(content)}")
        return content


def read_arrays(path: Path, limit: float = LIMIT) -> Any:
    """What a ``.pth`` file of tensors, NumPy arrays and plain values holds; nothing of it is run.

    Args:
        path: the file.
        limit: its largest size [GiB].

    Raises:
        MissingFileError: no such file.
        FileError: as `read_checkpoint`.
    """
    with named(path, ".pth file"):
        check_size(path, path.stat().st_size, limit)
        content = _loaded(path, [(found, name) for name, found in STAND_INS.items()])
        return with_arrays(content, _VALUES)


def _loaded(path: Path, allowed: list[Any]) -> Any:
    try:
        with torch.serialization.safe_globals(allowed):
            return torch.load(
                path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path)
            )
    except pickle.UnpicklingError as error:
        raise FileError(
            path,
            "no file of torch, or one that holds more than tensors and plain values, of which "
            "nothing is read",
        ) from error
