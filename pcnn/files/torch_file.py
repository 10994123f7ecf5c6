"""Arrays in files that torch wrote, with the suffix ``.pth``."""

from __future__ import annotations

import pickle
import pickletools
import zipfile
from pathlib import Path
from typing import IO, Any

import torch

from pcnn.errors import FileError
from pcnn.files.limits import LIMIT, check_size
from pcnn.files.named import named
from pcnn.files.pickled_arrays import STAND_INS, with_arrays

_VALUES = 1 << 24
_NAME = 4096  # characters
_OLD = 5  # pickles at the start of a file before version 1.6 of torch


def check_names(path: Path) -> None:
    """Refuse names in a file of torch that are longer than any name.

    `torch.load` searches the name that it refuses in its own message, which takes time that grows
    with the square of its length: hours for a megabyte.

    Raises:
        FileError: such a name, or no pickle.
    """
    with named(path, "file of torch"):
        if not zipfile.is_zipfile(path):
            with path.open("rb") as file:
                for _ in range(_OLD):
                    _check_names(path, file)
            return
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                if member.compress_type != zipfile.ZIP_STORED:
                    raise FileError(path, "its members are packed, which torch does not do")
                if member.filename.endswith("data.pkl"):
                    with archive.open(member) as file:
                        _check_names(path, file)


def _check_names(path: Path, file: IO[bytes]) -> None:
    longest = 0
    for code, argument, place in pickletools.genops(file):
        if isinstance(argument, str):
            longest = max(longest, len(argument))
            if len(argument) > _NAME and code.name in ("GLOBAL", "INST"):
                raise FileError(path, f"byte {place}: a name of {len(argument)} characters")
        if code.name == "STACK_GLOBAL" and longest > _NAME:
            raise FileError(path, f"byte {place}: a name of up to {longest} characters")


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
        check_names(path)
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
