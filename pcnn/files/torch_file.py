"""Arrays in files that torch wrote, with the suffix ``.pth``."""

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


def read_arrays(path: Path, limit: float = LIMIT) -> Any:
    """What a ``.pth`` file of tensors, NumPy arrays and plain values holds; nothing of it is run.

    Args:
        path: the file.
        limit: its largest size [GiB].

    Raises:
        MissingFileError: no such file.
        FileError: no file of torch, a torn one, or one that holds more than this.
    """
    with named(path, ".pth file"):
        check_size(path, path.stat().st_size, limit)
        stand_ins: list[Any] = [(found, name) for name, found in STAND_INS.items()]
        try:
            with torch.serialization.safe_globals(stand_ins):
                # tensors of an archive are taken out of the file's own bytes, never beyond them
                content = torch.load(
                    path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path)
                )
        except pickle.UnpicklingError as error:
            raise FileError(
                path,
                "no file of torch, or one that holds more than tensors and plain values, of which "
                "nothing is read",
            ) from error
        return with_arrays(content, _VALUES)
