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
_ORDERS = ("<", ">", "|", "=")


class PickledKind:
    """Stands in for `numpy.dtype`; numbers and text alone."""

    def __init__(self, code: str, align: bool = False, copy: bool = False) -> None:
        if not isinstance(code, str) or not _KIND.fullmatch(code):
            raise pickle.UnpicklingError(f"numbers of type {str(code)[:40]!r} are not taken")
        self.dtype = np.dtype(code)

    def __setstate__(self, state: Any) -> None:
        order = state[1]
        if order not in _ORDERS or any(part is not None for part in state[2:5]):
            raise pickle.UnpicklingError("a type with fields is not taken")
        self.dtype = self.dtype.newbyteorder(order)


class PickledArray:
    """Stands in for `numpy.ndarray`."""

    def __init__(self) -> None:
        self.values = np.empty(0)

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, fortran, raw = state
        if isinstance(raw, str):
            raw = raw.encode("latin-1")
        if not isinstance(raw, bytes | bytearray):
            raise pickle.UnpicklingError("an array without its bytes is not taken")
        self.values = _array(raw, kind, shape, "F" if fortran else "C")


def _array(raw: bytes | bytearray, kind: PickledKind, shape: Any, order: Any) -> np.ndarray:
    if not isinstance(shape, tuple) or any(type(n) is not int or n < 0 for n in shape):
        raise pickle.UnpicklingError("an array without a shape is not taken")
    return np.frombuffer(raw, kind.dtype).reshape(shape, order="F" if order == "F" else "C").copy()


def _reconstruct(kind: Any, shape: Any, code: Any) -> PickledArray:
    return PickledArray()


def _scalar(kind: PickledKind, raw: Any) -> Any:
    raw = raw.encode("latin-1") if isinstance(raw, str) else raw
    return _array(raw, kind, (1,), "C")[0].item()


def _encode(text: str, encoding: str = "latin1") -> bytes:
    return text.encode("latin-1")


def _from_buffer(raw: Any, kind: PickledKind, shape: Any, order: str) -> np.ndarray:
    return _array(bytes(raw), kind, shape, order)


#: Names in a pickle of plain values and arrays, with their safe replacements.
STAND_INS: Mapping[str, Callable[..., Any]] = {
    **{f"numpy.{core}.multiarray._reconstruct": _reconstruct for core in ("core", "_core")},
    **{f"numpy.{core}.multiarray.scalar": _scalar for core in ("core", "_core")},
    **{f"numpy.{core}.numeric._frombuffer": _from_buffer for core in ("core", "_core")},
    "numpy.ndarray": PickledArray,
    "numpy.dtype": PickledKind,
    "_codecs.encode": _encode,
}


class _Fixed:
    """A stand-in that a pickle calls and cannot change: states may be set on what it names."""

    __slots__ = ("_call",)
    _call: Callable[..., Any]

    def __init__(self, call: Callable[..., Any]) -> None:
        object.__setattr__(self, "_call", call)

    def __call__(self, *arguments: Any) -> Any:
        return self._call(*arguments)

    def __setattr__(self, name: str, value: Any) -> None:
        raise pickle.UnpicklingError("it changes what reads it")


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        found = STAND_INS.get(f"{module}.{name}")
        if found is None:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which holds no values")
        return _Fixed(found)


def read_pickle(path: Path) -> Any:
    """Content of a pickle of plain values and NumPy arrays."""
    with named(path, "pickle of plain values"):
        size = path.stat().st_size
        if size > TEXT:
            raise FileError(path, f"{size} bytes are too many for a list ({TEXT} at most)")
        content = path.read_bytes()
        # lengths beyond the file, and places in a memo that would be as long as they say
        for _, argument, place in pickletools.genops(content):
            if place is not None and _is_memo(content, place) and int(argument or 0) > size:
                raise FileError(path, f"byte {place}: no pickle of plain values")
        return with_arrays(_ArraysOnly(io.BytesIO(content)).load(), 8 * size + 1000)


def _is_memo(content: bytes, place: int) -> bool:
    return content[place : place + 1] in (pickle.PUT, pickle.BINPUT, pickle.LONG_BINPUT)


def with_arrays(value: Any, most: int) -> Any:
    """The same with arrays in place of what stood in for them."""
    left = most

    def plain(value: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise ValueError("it holds more values than its size allows")
        if isinstance(value, PickledArray):
            return value.values
        if isinstance(value, dict):
            return {plain(key): plain(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(plain(item) for item in value)
        if isinstance(value, PickledKind) or callable(value):
            raise ValueError("it holds a type, not a value")
        return value

    return plain(value)


_VALUES = 1 << 24
_NAME = 4096  # characters
_OLD = 5  # pickles at the start of a file before version 1.6 of torch


def check_names(path: Path) -> None:
    """Refuse names in a file of torch that are longer than any name.

    `torch.load` searches the name that it refuses in its own message, which takes time that grows
    with the square of its length: hours for a megabyte.
    """
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
