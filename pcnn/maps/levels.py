"""Sites of all levels of a network, straight from the finest ones, without a host sync.

A level is ``stride * floor(c / stride)`` of the finest sites, whatever lies between (Spira, section
5.5, the closed form). So one sort over (level, coarse cell) serves all levels; how many sites each
has stays on the device.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pcnn.geometry import KeyFormat
from pcnn.geometry.kernel_slots import Triple
from pcnn.geometry.voxel_grid import Box
from pcnn.kernels import cuda
from pcnn.maps.radix_sort import MAX_PASSES, TILE, RadixSort, passes_of, state_words

MAX_LEVELS = 12

_FIELDS = "iiii"
_PACK = struct.Struct(f"PPPPq{_FIELDS}0q")
_EXTENT = struct.Struct(f"PPq{_FIELDS}0q")
_LEVELS = struct.Struct(f"PPPPPPPPPqii{_FIELDS}{3 * MAX_LEVELS}i0q")
_UNIQUE = struct.Struct(f"11P4q{_FIELDS}{3 * MAX_LEVELS}i{MAX_LEVELS}I0q")
_FIT = struct.Struct(f"PPi{MAX_LEVELS + 1}I0q")
_ABOVE = struct.Struct("PPPqq")
_NO_TASK = b"\0" * _ABOVE.size
_NUMBER = struct.Struct("i0q")
#: Words of an extent: largest and smallest batch index, x, y and z, and the flags of what fails.
EXTENT_WORDS = 9
_FIELD_NAMES = ("the batch index", "x", "y", "z")
_THREADS = 256
_TOO_WIDE = 256

#: Blocks of kernels that walk over their input: enough to fill any device, few enough that adding
#: their histograms together costs nothing.
_BLOCKS = 264


@dataclass(frozen=True)
class Levels:
    """Sites of several levels, each with room for as many as the finest level has rows."""

    keys: Tensor  # [L, capacity] int64 packed keys, sorted, in the first counts[l] columns
    first: Tensor  # [L, capacity] int32, a finest row inside every site
    inverse: Tensor  # [L, capacity] int32, site of every finest row
    counts: Tensor  # [L] int32 sites of every level, on the device
    order: Tensor  # [L * capacity] int32
    whole: bool = False  # the first level is the finest itself


def pack_cells(
    cells: Tensor,  # [N, 4] int32 (batch, x, y, z), in any order
    key_format: KeyFormat,
    extent: Tensor | None = None,
    count: Tensor | None = None,  # [1] int32, number of cells that count
) -> tuple[Tensor, Tensor]:
    """Packed keys of integer cells, and their extent."""
    keys = torch.empty(cells.shape[0], dtype=torch.int64, device=cells.device)
    if extent is None:
        extent = torch.zeros(EXTENT_WORDS, dtype=torch.int32, device=cells.device)
    pointers = cells.data_ptr(), keys.data_ptr(), extent.data_ptr(), _address(count)
    arguments = _PACK.pack(*pointers, cells.shape[0], *_fields(key_format))
    blocks = min(_BLOCKS, -(-cells.shape[0] // _THREADS))
    cuda.module("levels.cu", cells.device).launch("pack_cells", blocks, arguments, cells.device)
    return keys, extent


def check_overflow(flags: int, key_format: KeyFormat) -> None:
    """Refuse cells that do not fit a packed key."""
    for field, name in enumerate(_FIELD_NAMES):
        if flags >> field & 1:
            half = key_format.half[field - 1]
            limit = f"-{half}..{half - 1}" if field else f"0..{key_format.max_batch - 1}"
            raise ValueError(
                f"voxel grid: {name} leaves {limit}, all that a packed key holds; centre the cloud "
                "or use larger voxels"
                if field
                else f"voxel grid: {name} leaves {limit}, all that a packed key holds"
            )
    if flags & _TOO_WIDE:
        raise ValueError(
            "voxel grid: the cloud fills the packed key, and its levels together need more than "
            "64 bits to be sorted; centre the cloud or use larger voxels"
        )


def extent_of(keys: Tensor, key_format: KeyFormat, extent: Tensor | None = None) -> Tensor:
    """Extent of packed keys: ``[9]`` int32, largest and smallest field of batch, x, y and z.

    Kept as maxima of unsigned numbers, so that zeros are the empty extent (`csrc/levels.cu`).
    """
    if extent is None:
        extent = torch.zeros(EXTENT_WORDS, dtype=torch.int32, device=keys.device)
    arguments = _EXTENT.pack(
        keys.data_ptr(), extent.data_ptr(), keys.shape[0], *_fields(key_format)
    )
    blocks = min(_BLOCKS, -(-keys.shape[0] // _THREADS))
    cuda.module("levels.cu", keys.device).launch("extent_of_keys", blocks, arguments, keys.device)
    return extent


def unique_sites(
    keys: Tensor,  # [N] int64 packed keys, in any order, duplicates allowed
    extent: Tensor,
    strides: Sequence[Triple],
    key_format: KeyFormat,
    count: Tensor | None = None,  # [1] int32, number of keys that count; None means all
    bits: int | None = None,
    counts: Tensor | None = None,  # [L] int32 for the numbers of sites, made if not given
    scratch: Tensor | None = None,  # [scratch_words(L, N)] int32, zeroed, made if not given
    passes: int = MAX_PASSES,
    needed: Tensor | None = None,  # [1] int32 for the passes that the cloud's extent takes
    rooms: Sequence[int] | None = None,
) -> Levels:
    """Sorted unique sites ``stride * floor(c / stride)`` for each of several strides."""
    levels, n, device = len(strides), keys.shape[0], keys.device
    level_bits = (levels - 1).bit_length()
    widest = 63 if bits is None else min(bits, 63)
    if levels > MAX_LEVELS:
        raise ValueError(f"one sort takes at most {MAX_LEVELS} levels, got {levels}: {strides}")
    if scratch is None:
        scratch = torch.zeros(scratch_words(levels, n), dtype=torch.int32, device=device)
    sort = RadixSort.of(levels * n, device, scratch[: state_words(levels * n)])
    padded = [value for stride in strides for value in stride] + [1] * 3 * (MAX_LEVELS - levels)
    fields = _fields(key_format)
    counted = _address(count)
    module = cuda.module("levels.cu", device)
    module.launch(
        "level_keys",
        max(1, min(_BLOCKS, -(-n // _THREADS))),
        _LEVELS.pack(
            keys.data_ptr(),
            counted,
            extent.data_ptr(),
            *sort.pointers,
            _address(needed),
            n,
            levels,
            level_bits,
            *fields,
            *padded,
        ),
        device,
    )
    launched = min(passes, passes_of(widest + level_bits))
    sort.run(launched)
    tiles = max(1, -(-n // TILE))
    words = scratch.data_ptr() + 4 * state_words(levels * n)
    if rooms is None:
        sites = torch.empty(levels, n, dtype=torch.int64, device=device)
        first, inverse = torch.empty(2, levels, n, dtype=torch.int32, device=device).unbind()
    else:
        sites = torch.full((levels, n), key_format.sentinel, dtype=torch.int64, device=device)
        first, inverse = torch.zeros(2, levels, n, dtype=torch.int32, device=device).unbind()
    if counts is None:
        counts = torch.empty(levels, dtype=torch.int32, device=device)
    module.launch(
        "unique_sites",
        levels * tiles,
        _UNIQUE.pack(
            sort.keys.data_ptr(),
            sort.values.data_ptr(),
            keys.data_ptr(),
            counted,
            words,
            words + 4 * levels * tiles,
            sites.data_ptr(),
            first.data_ptr(),
            inverse.data_ptr(),
            counts.data_ptr(),
            sort.state.data_ptr(),
            launched,
            n,
            n,
            tiles,
            *fields,
            *padded,
            *_padded_rooms([n] * levels if rooms is None else rooms),
        ),
        device,
    )
    return Levels(sites, first, inverse, counts, sort.values[0])


def fitting_counts(counts: Tensor, rooms: Sequence[int]) -> Tensor:
    """Numbers of sites that fit rooms of fixed size: all of them, or zeros where one does not fit.

    So what follows never leaves its memory, and a cloud that is too large is seen in the counts.
    """
    fitting = torch.empty_like(counts)
    pointers = counts.data_ptr(), fitting.data_ptr()
    arguments = _FIT.pack(*pointers, len(rooms), *_padded_rooms(rooms, MAX_LEVELS + 1))
    cuda.module("levels.cu", counts.device).launch("fit_counts", 1, arguments, counts.device)
    return fitting


def rows_above(levels: Levels, wanted: Sequence[tuple[int | None, int, int]]) -> list[Tensor]:
    """Row of a coarser level above every row of a finer one, for many pairs of levels."""
    device, sizes = levels.inverse.device, [rows for _, _, rows in wanted]
    found = torch.empty(sum(sizes), dtype=torch.int64, device=device).split_with_sizes(sizes)
    width = 4 * levels.inverse.shape[1]
    first, inverse = levels.first.data_ptr(), levels.inverse.data_ptr()
    module = cuda.module("levels.cu", device)
    for start in range(0, len(wanted), MAX_LEVELS):
        tasks, blocks = [], 0
        for number in range(start, min(start + MAX_LEVELS, len(wanted))):
            finer, coarser, rows = wanted[number]
            inside = 0 if finer is None else first + finer * width
            places = inside, inverse + coarser * width, found[number].data_ptr()
            tasks.append(_ABOVE.pack(*places, rows, blocks))
            blocks += -(-rows // _THREADS)
        count = len(tasks)
        tasks += [_NO_TASK] * (MAX_LEVELS - count) + [_NUMBER.pack(count)]
        module.launch("rows_above", blocks, b"".join(tasks), device)
    return list(found)


def scratch_words(levels: int, n: int) -> int:
    """Zeroed words that `unique_sites` needs for so many levels and keys."""
    return state_words(levels * n) + levels * (max(1, -(-n // TILE)) + 1)


def box_of(extent: Sequence[int], key_format: KeyFormat) -> Box:
    """Lowest and highest coordinate of every axis, from the words of an extent on the host."""
    if not extent[1]:
        return (0, 0, 0), (0, 0, 0)
    x, y, z = (key_format.half[axis] - extent[5 + axis] for axis in range(3))
    u, v, w = (extent[1 + axis] - 1 - key_format.half[axis] for axis in range(3))
    return (x, y, z), (u, v, w)


def box_bits(box: Box, batch_size: int, stride: Triple = (1, 1, 1)) -> int:
    """Bits of a cell counted from the lowest one, from what the host knows."""
    axes = (
        (high // step - low // step).bit_length()
        for low, high, step in zip(*box, stride, strict=True)
    )
    return sum(axes) + (batch_size - 1).bit_length()


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


def _padded_rooms(rooms: Sequence[int], most: int = MAX_LEVELS) -> list[int]:
    return [*rooms, *[0] * (most - len(rooms))]


def _fields(key_format: KeyFormat) -> tuple[int, int, int, int]:
    return *key_format.axis_bits, key_format.batch_bits
