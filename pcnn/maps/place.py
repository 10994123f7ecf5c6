"""Tensors into memory of fixed size, in one launch where a device has a kernel for it."""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from pcnn.geometry.tile_steps import TILE_ROWS
from pcnn.kernels import cuda
from pcnn.kernels.structs import packer

#: As in ``csrc/place.cu``.
MAX_PARTS, WORDS = 64, 4096
KEPT, FILLED, PLACES = range(3)

#: How a number of so many bytes fills 64 bits, for integers and floating point numbers.
_PATTERNS = {(4, True): "ff", (4, False): "ii", (8, True): "d", (8, False): "q"}


class Part(NamedTuple):
    """A tensor of fixed size, and what it takes."""

    own: Tensor  # contiguous, at least as many numbers as source
    source: Tensor  # what is copied to its beginning
    spare: float | None = None  # what is written behind that; None: nothing
    first: int | None = None  # of the output rows of tiles


def place(parts: Sequence[Part]) -> None:
    """Copy tensors to memory of fixed size, and write what is spare behind them.

    Parts without memory (on the meta device) are left out.
    """
    devices: dict[torch.device, list[Part]] = {}
    for part in parts:
        device = part.own.device
        if device.type in cuda.LOADERS and _in_words(part):
            devices.setdefault(device, []).append(part)
        elif device.type != "meta":
            place_in_torch(part)
    for device, served in devices.items():
        for first in range(0, len(served), MAX_PARTS):
            _launch(served[first : first + MAX_PARTS], device)


def place_in_torch(part: Part) -> None:
    """`place` of one part."""
    own, source, spare, first = part
    flat, values = own.view(-1), source.reshape(-1)
    if first is not None:
        places = torch.arange(len(flat), dtype=own.dtype, device=own.device)
        there = first + places[: len(values)] % TILE_ROWS
        flat[len(values) :].copy_(places[len(values) :])
        values = torch.where(values < 0, there, values)
    elif spare is not None:
        flat[len(values) :].fill_(spare)
    flat[: len(values)].copy_(values, non_blocking=own.is_cuda)


def _in_words(part: Part) -> bool:
    """True if all that is copied and written are words of 32 bits of one device."""
    own, source, spare, first = part
    if own.dtype is not source.dtype or own.device != source.device:
        return False
    if own.dtype.itemsize in (4, 8):
        return True
    ends = own.data_ptr() | source.data_ptr() | source.nbytes
    return spare is None and first is None and source.is_contiguous() and ends % 4 == 0


def _launch(parts: Sequence[Part], device: torch.device) -> None:
    packed, kept, block = [], [], 0
    pack = packer("place.cu", "PlacePart")  # a graph's call waits for it
    for own, given, value, first in parts:
        source = given.contiguous()
        kept.append(source)
        words, room = source.nbytes // 4, own.nbytes // 4
        kind, spare = KEPT, (0, 0)
        if first is not None:
            kind = PLACES
        elif value is not None:
            kind, spare = FILLED, pattern_of(value, source.dtype)
        else:
            room = words
        sizes = words, room, *spare, kind, first or 0, block
        packed.append(pack(source.data_ptr(), own.data_ptr(), *sizes))
        block += -(-room // WORDS)
    if block:
        cuda.module("place.cu", device).launch("place", block, parts=packed, n=len(packed))


@functools.cache
def pattern_of(value: float, dtype: torch.dtype) -> tuple[int, int]:
    """A number as two words of memory: once, or twice if it has 32 bits."""
    code = _PATTERNS[dtype.itemsize, dtype.is_floating_point]
    values = [value if dtype.is_floating_point else int(value)] * len(code)
    low, high = struct.unpack("<II", struct.pack(f"<{code}", *values))
    return low, high
