"""Tensors into memory of fixed size, in one launch where a device has a kernel for it."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from pcnn.geometry.padding import Part, place_in_torch
from pcnn.kernels import cuda
from pcnn.kernels.structs import struct_of

#: As in ``csrc/place.cu``.
MAX_PARTS, WORDS = 64, 4096
KEPT, FILLED, PLACES = range(3)

#: How a number of so many bytes fills 64 bits, for integers and floating point numbers.
_PATTERNS = {(4, True): "ff", (4, False): "ii", (8, True): "d", (8, False): "q"}


@functools.cache
def _pack() -> Callable[..., bytes]:
    """Bytes of a part from its members in order; a graph's call waits for it."""
    return struct_of("place.cu", "PlacePart", ()).in_order


def place(parts: Sequence[Part]) -> None:
    """Copy tensors to memory of fixed size, and write what is spare behind them."""
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


class Intake:
    """Memory of fixed size that takes the tensors of one call after another, in one launch."""

    def __init__(self, count: Tensor, memory: Sequence[Tensor]) -> None:
        self._count, self._memory = count, list(memory)
        self._device = count.device
        # addresses and dtypes are asked for once: the device waits for what a call looks up
        self._kinds = [(one.data_ptr(), one.dtype) for one in memory]

    def take(self, tensors: Sequence[Tensor]) -> None:
        """Copy tensors to the beginning of the memory, and the number of their rows."""
        n, pack = len(tensors[0]), _pack()
        packed = [pack(0, self._count.data_ptr(), 0, 1, n, 0, FILLED, 0, 0)]
        block = 1
        if self._device.type in cuda.LOADERS:
            for (address, dtype), tensor in zip(self._kinds, tensors, strict=True):
                start, size = tensor.data_ptr(), tensor.nbytes
                same = tensor.dtype is dtype and tensor.device == self._device
                if not same or not tensor.is_contiguous() or (start | size) % 4:
                    break
                words = size // 4
                packed.append(pack(start, address, words, words, 0, 0, KEPT, 0, block))
                block += -(-words // WORDS)
            else:
                _start(packed, block, self._device)
                return
        parts = [Part(self._count, self._count[:0], n)]
        for own, tensor in zip(self._memory, tensors, strict=True):
            if tensor.device == own.device:
                parts.append(Part(own, tensor))
            else:
                own[:n].copy_(tensor, non_blocking=True)
        place(parts)


def _in_words(part: Part) -> bool:
    """True if all that is copied and written are words of 32 bits."""
    own, source = part.own, part.source
    if own.dtype.itemsize in (4, 8):
        return True
    ends = own.data_ptr() | source.data_ptr() | source.nbytes
    whole = part.spare is None and part.first is None
    return whole and source.is_contiguous() and ends % 4 == 0


def _launch(parts: Sequence[Part], device: torch.device) -> None:
    packed, kept, block, pack = [], [], 0, _pack()
    for part in parts:
        source = part.source.contiguous()
        kept.append(source)
        words, room = source.nbytes // 4, part.own.nbytes // 4
        kind, spare, first = KEPT, (0, 0), 0
        if part.first is not None:
            kind, first = PLACES, part.first
        elif part.spare is not None:
            kind, spare = FILLED, pattern_of(part.spare, source.dtype)
        else:
            room = words
        sizes = words, room, *spare, kind, first, block
        packed.append(pack(source.data_ptr(), part.own.data_ptr(), *sizes))
        block += -(-room // WORDS)
    if block:
        _start(packed, block, device)


def _start(packed: Sequence[bytes], blocks: int, device: torch.device) -> None:
    """Launch the kernel on parts as it takes them."""
    cuda.module("place.cu", device).launch("place", blocks, parts=packed, n=len(packed))


def pattern_of(value: float, dtype: torch.dtype) -> tuple[int, int]:
    """A number as two words of memory: once, or twice if it has 32 bits."""
    code = _PATTERNS[dtype.itemsize, dtype.is_floating_point]
    values = [value if dtype.is_floating_point else int(value)] * len(code)
    low, high = struct.unpack("<II", struct.pack(f"<{code}", *values))
    return low, high
