"""Tensors into memory of fixed size, in one launch where a device has a kernel for it."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import torch

from pcnn.geometry.padding import Part, place_in_torch
from pcnn.kernels import cuda

#: As in ``csrc/place.cu``.
MAX_PARTS, WORDS = 64, 4096
KEPT, FILLED, PLACES, STEPS = range(4)

_PART = struct.Struct("PPqqQiIq")
_NO_PART = b"\0" * _PART.size
_NUMBER = struct.Struct("q")
#: How a number of so many bytes fills 64 bits, for integers and floating point numbers.
_PATTERNS = {(4, True): "ff", (4, False): "ii", (8, True): "d", (8, False): "q"}


def place(parts: Sequence[Part]) -> None:
    """Copy tensors to memory of fixed size, and write what is spare behind them.

    Args:
        parts: the tensors; those on a device without kernels take a launch or more each, and so do
            those of less than 32 bits that have spare numbers or do not begin and end at 32 bits.
    """
    others: list[Part] = []
    devices: dict[torch.device, list[Part]] = {}
    for part in parts:
        served = part.own.device.type in cuda.LOADERS and part.own.device == part.source.device
        if served and part.own.dtype == part.source.dtype and _in_words(part):
            devices.setdefault(part.own.device, []).append(part)
        else:
            others.append(part)
    place_in_torch(others)
    for device, own in devices.items():
        for first in range(0, len(own), MAX_PARTS):
            _launch(own[first : first + MAX_PARTS], device)


def _in_words(part: Part) -> bool:
    """True if all that is copied and written are words of 32 bits."""
    own, source = part.own, part.source
    if own.dtype.itemsize in (4, 8):
        return True
    ends = own.data_ptr() | source.data_ptr() | source.nbytes
    whole = part.spare is None and part.first is None and part.listed is None
    return whole and source.is_contiguous() and ends % 4 == 0


def _launch(parts: Sequence[Part], device: torch.device) -> None:
    packed, kept, block = [], [], 0
    for part in parts:
        source = part.source.contiguous()
        kept.append(source)
        words, room = source.nbytes // 4, part.own.nbytes // 4
        kind, spare, first = KEPT, 0, 0
        if part.first is not None:
            kind, first = PLACES, part.first
        elif part.listed is not None:
            kind, first = STEPS, part.listed
        elif part.spare is not None:
            kind, spare = FILLED, pattern_of(part.spare, source.dtype)
        else:
            room = words
        sizes = words, room, spare, kind, first, block
        packed.append(_PART.pack(source.data_ptr(), part.own.data_ptr(), *sizes))
        block += -(-room // WORDS)
    if block:
        packed += [_NO_PART] * (MAX_PARTS - len(packed))
        arguments = b"".join(packed) + _NUMBER.pack(len(parts))
        cuda.module("place.cu", device).launch("place", block, arguments, device)


def pattern_of(value: float, dtype: torch.dtype) -> int:
    """A number as 64 bits of memory: once, or twice if it has 32."""
    code = _PATTERNS[dtype.itemsize, dtype.is_floating_point]
    values = [value if dtype.is_floating_point else int(value)] * len(code)
    return int.from_bytes(struct.pack(f"<{code}", *values), "little")
