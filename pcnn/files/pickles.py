"""Pickles and files of torch, which hold plain values and arrays here; nothing of them is run.

A pickle may run any code when it is read, and states that NumPy's own types take from it unchecked
can name memory that is not theirs. Here stand-ins take the place of these types; what they were
given is checked before an array is made of it.
"""

from __future__ import annotations

import io
import mmap
import pickle
import pickletools
import re
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pcnn.errors import FileError
from pcnn.files.bounded import TEXT, check_size, named

_KIND = re.compile(r"(b1|[fiu][1248]|[SU]\d{1,4})")


class PickledKind:
    """Stands in for `numpy.dtype`; numbers and text alone."""

    def __init__(self, code: str, align: bool = False, copy: bool = False) -> None:
        if not isinstance(code, str) or not _KIND.fullmatch(code):
            raise pickle.UnpicklingError(f"numbers of type {str(code)[:40]!r} are not taken")
        self.dtype = np.dtype(code)

    def __setstate__(self, state: Any) -> None:
        if state[1] not in ("<", ">", "|", "=") or any(part is not None for part in state[2:5]):
            raise pickle.UnpicklingError("a type with fields is not taken")
        self.dtype = self.dtype.newbyteorder(state[1])


class PickledArray:
    """Stands in for `numpy.ndarray`; `values` is the array."""

    def __init__(self, *_: Any) -> None:
        self.values = np.empty(0)

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, fortran, raw = state
        self.values = _array(raw, kind, shape, "F" if fortran else "C")


def _array(raw: Any, kind: PickledKind, shape: Any, order: Any) -> np.ndarray:
    raw = raw.encode("latin-1") if isinstance(raw, str) else bytes(memoryview(raw))
    if not isinstance(shape, tuple) or any(type(n) is not int or n < 0 for n in shape):
        raise pickle.UnpicklingError("an array without a shape is not taken")
    return np.frombuffer(raw, kind.dtype).reshape(shape, order="F" if order == "F" else "C").copy()


class _Fixed:
    """What a pickle calls and cannot change: states may be set on what it names."""

    __slots__ = ("_call",)
    _call: Callable[..., Any]

    def __init__(self, call: Callable[..., Any]) -> None:
        object.__setattr__(self, "_call", call)

    def __call__(self, *arguments: Any) -> Any:
        return self._call(*arguments)

    def __setattr__(self, name: str, value: Any) -> None:
        raise pickle.UnpicklingError("it changes what reads it")


#: Names in a pickle of plain values and arrays, with their safe replacements.
STAND_INS: Mapping[str, Callable[..., Any]] = {
    **{f"numpy.{core}.multiarray._reconstruct": PickledArray for core in ("core", "_core")},
    **{
        f"numpy.{core}.multiarray.scalar": lambda kind, raw: _array(raw, kind, (1,), "C")[0].item()
        for core in ("core", "_core")
    },
    **{f"numpy.{core}.numeric._frombuffer": _array for core in ("core", "_core")},
    "numpy.ndarray": PickledArray,
    "numpy.dtype": PickledKind,
    "_codecs.encode": lambda text, encoding="latin1": text.encode("latin-1"),
}


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        found = STAND_INS.get(f"{module}.{name}")
        if found is None:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which holds no values")
        return _Fixed(found)


def read_pickle(path: Path) -> Any:
    """A list or dict of plain values, in which `array_of` finds NumPy arrays."""
    with named(path, "pickle of plain values"):
        size = path.stat().st_size
        if size > TEXT:
            raise FileError(path, f"{size} bytes are too many for a list ({TEXT} at most)")
        content = path.read_bytes()
        # lengths beyond the file, and places in a memo that would be as long as they say
        memo = (pickle.PUT, pickle.BINPUT, pickle.LONG_BINPUT)
        for _, argument, place in pickletools.genops(content):
            is_memo = place is not None and content[place : place + 1] in memo
            if is_memo and int(argument or 0) > size:
                raise FileError(path, f"byte {place}: no pickle of plain values")
        found = _ArraysOnly(io.BytesIO(content)).load()
        if not isinstance(found, list | dict):
            raise FileError(path, "neither a list nor a dict")
        return found


def array_of(value: Any) -> np.ndarray | None:
    """The array that a value of `read_pickle` or `read_arrays` is; None where it is none."""
    value = value.values if isinstance(value, PickledArray) else value
    if isinstance(value, torch.Tensor):
        whole = value.float() if value.dtype == torch.bfloat16 else value  # which numpy lacks
        value = whole.detach().cpu().numpy()
    return value if isinstance(value, np.ndarray) else None


_NAME = 4096  # characters
_OLD = 5  # pickles at the start of a file before version 1.6 of torch


def check_names(path: Path) -> None:
    """Refuse names in a file of torch that are longer than any name."""
    with named(path, "file of torch"):
        if not zipfile.is_zipfile(path):
            # a mapped file: `read(n)` of an open one reserves the n bytes that a file claims
            with (
                path.open("rb") as file,
                mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
            ):
                for _ in range(_OLD):
                    _check_names(path, mapped)
            return
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                if member.compress_type != zipfile.ZIP_STORED:
                    raise FileError(path, "its members are packed, which torch does not do")
                if member.filename.endswith("data.pkl"):
                    with archive.open(member) as content:
                        _check_names(path, content)


def _check_names(path: Path, file: Any) -> None:
    longest = 0
    for code, argument, place in pickletools.genops(file):
        if isinstance(argument, str):
            longest = max(longest, len(argument))
            if len(argument) > _NAME and code.name in ("GLOBAL", "INST"):
                raise FileError(path, f"byte {place}: a name of {len(argument)} characters")
        if code.name == "STACK_GLOBAL" and longest > _NAME:
            raise FileError(path, f"byte {place}: a name of up to {longest} characters")


def read_arrays(path: Path) -> Any:
    """Content of a ``.pth`` file of tensors, arrays and plain values; nothing of it is run."""
    with named(path, ".pth file"):
        check_size(path, path.stat().st_size)
        check_names(path)
        stand_ins: list[Any] = [(found, name) for name, found in STAND_INS.items()]
        try:
            with torch.serialization.safe_globals(stand_ins):
                # tensors of an archive are taken out of the file's own bytes, never beyond them
                return torch.load(
                    path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path)
                )
        except pickle.UnpicklingError as error:
            raise FileError(
                path, "no file of torch, or of more than tensors and plain values, which are read"
            ) from error
