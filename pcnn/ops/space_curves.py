"""Orders of cells along space-filling curves: neighbours in space stand near one another."""

from __future__ import annotations

import torch
from torch import Tensor

#: Bits of a coordinate on a curve.
BITS = 16
#: Bits of a curve that one look into the table of `hilbert_table` turns.
_CHUNK = 12
#: (shift, mask) that move the bits of a number two places apart, step by step.
_SPREAD = (
    (32, 0x1F00000000FFFF),
    (16, 0x1F0000FF0000FF),
    (8, 0x100F00F00F00F00F),
    (4, 0x10C30C30C30C30C3),
    (2, 0x1249249249249249),
)


def z_order(cells: Tensor) -> Tensor:
    """Place of cells on the z-order curve; nothing waits for the device."""
    spread = cells.clamp(max=(1 << BITS) - 1)
    for shift, mask in _SPREAD:
        spread = (spread | (spread << shift)) & mask
    x, y, z = spread.unbind(1)
    return (x << 2) | (y << 1) | z


def hilbert(codes: Tensor, table: Tensor) -> Tensor:
    """Place on the Hilbert curve of cells whose place on the z-order curve is known."""
    state, place = torch.zeros_like(codes), torch.zeros_like(codes)
    for shift in range(3 * BITS - _CHUNK, -1, -_CHUNK):
        chunk = (codes >> shift) & ((1 << _CHUNK) - 1)
        found = table[(state << _CHUNK) | chunk]
        place = (place << _CHUNK) | (found & ((1 << _CHUNK) - 1))
        state = found >> _CHUNK
    return place


def hilbert_table() -> Tensor:
    """Transitions of the Hilbert curve (Hamilton 2006), four levels at once.

    The curve through a cube enters at one corner and leaves along one axis: 8 * 3 states. In each
    of them, the eight parts of the cube have an order and states of their own.
    """
    digit, following = torch.empty(2, 24, 8, dtype=torch.int64).unbind()
    for state in range(24):
        corner, axis = divmod(state, 3)
        for part in range(8):
            code = _gray_rank(_rotated(part ^ corner, -(axis + 1)))
            first = 0 if code == 0 else _gray(2 * ((code - 1) // 2))
            turn = 0 if code == 0 else _trailing_ones(code if code % 2 else code - 1) % 3
            digit[state, part] = code
            entered = corner ^ _rotated(first, axis + 1)
            following[state, part] = 3 * entered + (axis + turn + 1) % 3
    states = torch.arange(24)[:, None].expand(24, 1 << _CHUNK)
    chunks = torch.arange(1 << _CHUNK).expand(24, -1)
    places = torch.zeros_like(chunks)
    for shift in range(_CHUNK - 3, -1, -3):
        parts = (chunks >> shift) & 7
        places = (places << 3) | digit[states, parts]
        states = following[states, parts]
    return ((states << _CHUNK) | places).flatten()


def _rotated(bits: int, by: int) -> int:
    """Three bits rotated to the left."""
    by %= 3
    return ((bits << by) | (bits >> (3 - by))) & 7


def _gray(number: int) -> int:
    return number ^ (number >> 1)


def _gray_rank(code: int) -> int:
    return code ^ (code >> 1) ^ (code >> 2)


def _trailing_ones(number: int) -> int:
    return (~number & (number + 1)).bit_length() - 1
