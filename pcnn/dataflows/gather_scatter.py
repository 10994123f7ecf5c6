"""Gather, multiply, scatter: the dataflow of MinkowskiEngine, TorchSparse and Minuet.

Rows are gathered to a buffer, every slot padded to the longest of its group. Products are torch's
own matrix multiplication, one call a group of slots.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from pcnn.dataflows.grouping import Adaptive, Grouping, Sorted
from pcnn.dataflows.torch_sums import (
    Reference,
    has_wide_products,
    join,
    joined_groups,
    kernels_serve,
    per_group,
    reduced_product,
)
from pcnn.kernels.conv_spec import ConvSpec
from pcnn.kernels.streams import own_stream

#: The grouping of TorchSparse until its tolerance and threshold are searched for a layer.
ADAPTIVE = Adaptive(0.25)

#: Streams that are kept for a device: as many as Minuet has.
MOST_STREAMS = 4


@dataclass(frozen=True)
class GatherScatter:
    """Weight-stationary products of gathered rows, by torch's own matrix multiplication.

    ``X[p] = x[j]`` for all triplets (i, j, k), by slot; ``Y = X[slot k] @ W[k]``; ``out[i]`` sums
    its rows of Y. The two buffers hold T x C_in and T x C_out values and some padding, by nature.
    On a GPU, rows are moved by Triton kernels; elsewhere, and in float64, the reference computes.

    Sums are float32: inside the products, and when rows are scattered. Between
    the two, a product is rounded to the compute dtype: a float16 product beyond 65504 overflows
    even where the sum would not, and an output row carries one rounding more.

    Sources: TorchSparse (MLSys 2022) sections 4.2, 4.3; Minuet (EuroSys 2024) section 5.2.
    Deviation: in the slots' order sums are float32 in memory, where TorchSparse has float16.
    """

    grouping: Grouping = ADAPTIVE  # which slots are multiplied together
    locality: bool = True  # rows move in their own order; otherwise in the slots', with atomics
    gather_tile: int | None = None  # channels a program gathers
    scatter_tile: int | None = None  # the same of the scatter
    streams: int = 1  # streams the products of groups are spread over
    fuses: bool = True

    def __post_init__(self) -> None:
        if not 1 <= self.streams <= MOST_STREAMS:
            raise ValueError(f"streams must be in 1..{MOST_STREAMS}, got {self.streams}")

    @property
    def needs(self) -> tuple[str, ...]:
        order = ("by_in", "by_out") if self.locality else ("counts",)
        return "pairs", "identity_slot", *order

    @property
    def needs_weight_grad(self) -> tuple[str, ...]:
        return self.needs

    @property
    def deterministic(self) -> bool:
        """True if two runs give identical bits: only the order of the slots has atomics."""
        return self.locality

    def forward(
        self, x: Tensor, w: Tensor, layouts: Sequence[Tensor], n_out: int, spec: ConvSpec
    ) -> Tensor:
        if not kernels_serve(x, spec.compute_dtype):
            return Reference().forward(x, w, layouts[:3], n_out, spec)
        from pcnn.kernels.epilogue import finish
        from pcnn.kernels.gather_scatter import move_slots, scatter

        dtype, rows = spec.compute_dtype, join(x, spec.skip).contiguous()
        placed = self._placement(layouts, spec, x.device)
        place = placed.place
        matrices = w.to(dtype)  # [K, A, C] of one group
        if spec.groups > 1:
            matrices = per_group(matrices, spec.groups)  # [K, G, A, C]
        if spec.transposed:  # read through its strides
            matrices = matrices.transpose(-2, -1)
        channels = spec.groups * matrices.shape[-1]
        gathered = rows.new_empty(place.gathered, rows.shape[1], dtype=dtype)
        products = rows.new_empty(place.rows, channels, dtype=dtype)
        jobs = []
        for block, own in zip(place.products, placed.matrices(matrices), strict=True):
            same = block is place.identity
            source = (rows.to(dtype), 0) if same else (gathered, block.start)
            jobs.append(partial(multiply_slots, *source, own, products, block.start, block.rows))
        self._gather(rows, layouts, placed, 0, gathered)
        run_on_streams(jobs, rows.device, self.streams)
        if self.locality:
            out = products.new_empty(n_out, channels, dtype=spec.out_dtype)
            how = placed.shifts, out, spec.epilogue, self.scatter_tile
            scatter(products, layouts[7:10], *how)
            return out
        sums = products.new_zeros(n_out, channels, dtype=torch.float32)
        lists = layouts[1], layouts[4], placed.shifts
        move_slots(products, *lists, sums, scatter=True, tile=self.scatter_tile)
        return finish(sums, spec.out_dtype, spec.epilogue)

    def weight_grad(
        self, x: Tensor, g: Tensor, layouts: Sequence[Tensor], spec: ConvSpec
    ) -> Tensor:
        if not kernels_serve(x, spec.compute_dtype):
            return Reference().weight_grad(x, g, layouts[:3], spec)
        placed, groups = self._placement(layouts, spec, x.device), spec.groups
        place = placed.place
        # sums over rows leave float16's range: the results are wide, or else the operands too
        operands = spec.compute_dtype if has_wide_products() else torch.float32
        shape = groups, x.shape[1] // groups, g.shape[1] // groups
        parts = [x.new_zeros(shape, dtype=torch.float32)] * (len(place.offsets) - 1)
        sides, buffers = (x.contiguous(), g.contiguous()), []
        for side, rows in enumerate(sides):
            buffer = rows.new_empty(place.gathered, rows.shape[1], dtype=operands)
            self._gather(rows, layouts, placed, side, buffer)
            # padding is never read as a product, but a reduction over padded rows adds it
            buffers.append(buffer.index_fill_(0, placed.padding, 0))
        for block in place.blocks:
            pair = [buffer[block.start : block.end] for buffer in buffers]
            reduce_block(pair, block, groups, parts)
        if place.identity is not None:
            reduce_block([rows.to(operands) for rows in sides], place.identity, groups, parts)
        return joined_groups(torch.stack(parts), spec)

    def _placement(
        self, layouts: Sequence[Tensor], spec: ConvSpec, device: torch.device
    ) -> Placement:
        return placement(layouts[2], self.grouping, int(layouts[3]), spec.mirrored, device)

    def _gather(
        self,
        rows: Tensor,
        layouts: Sequence[Tensor],
        placed: Placement,
        side: int,
        buffer: Tensor,
    ) -> None:
        """Copy rows of the features (side 0), or of the gradients, to all blocks of a buffer."""
        from pcnn.kernels.gather_scatter import gather, move_slots

        place, tile = placed.place, self.gather_tile
        skip = -1 if place.identity is None else place.identity.slots[0]
        if not place.gathered:
            return
        if self.locality:
            lists = layouts[4 + 3 * side : 7 + 3 * side]
            gather(rows, lists, placed.shifts, buffer, skip, tile)
        else:
            lists = layouts[side], layouts[4], placed.shifts
            move_slots(rows, *lists, buffer, skip=skip, tile=tile)


#: TorchSparse (MLSys 2022). The paper searches tolerance and threshold for each layer
#: (`pcnn.tune`); on scans these give its average padding.
TORCHSPARSE = GatherScatter(ADAPTIVE)

#: Minuet (EuroSys 2024). The paper searches padding threshold and tiles for each layer.
MINUET = GatherScatter(Sorted(0.15), streams=4)


def run_on_streams(jobs: Sequence[Callable[[], object]], device: torch.device, n: int) -> None:
    """Run launches one after another, or spread over ``n`` side streams."""
    n = min(n, len(jobs))
    if n <= 1 or device.type != "cuda":
        for job in jobs:
            job()
        return
    current = torch.cuda.current_stream(device)
    begin = current.record_event()
    try:
        for number, stream in enumerate(_streams(device)[:n]):
            torch.cuda.set_stream(stream)
            stream.wait_event(begin)
            for job in jobs[number::n]:
                job()
            current.wait_event(stream.record_event())
    finally:
        torch.cuda.set_stream(current)


def _streams(device: torch.device) -> tuple[torch.cuda.Stream, ...]:
    return tuple(own_stream(device, f"job {number}") for number in range(MOST_STREAMS))


@dataclass(frozen=True)
class Block:
    """Slots that are multiplied by one call, one after another in the buffer."""

    slots: tuple[int, ...]  # in the order of the buffer
    weights: tuple[int, ...]  # the matrix every slot multiplies, ascending
    start: int  # first row of the block
    rows: int  # rows of every slot, padding included

    @property
    def end(self) -> int:
        """One past the last row of the block."""
        return self.start + len(self.slots) * self.rows


@dataclass(frozen=True)
class PaddedBuffer:
    """Rows of all slots: those of slot k at ``offsets[k] + shifts[k]`` and after."""

    offsets: tuple[int, ...]  # [K + 1], triplets of slot k are offsets[k]..offsets[k + 1] of pairs
    shifts: tuple[int, ...]  # [K], buffer row of a slot's triplet less its position in pairs
    blocks: tuple[Block, ...]  # what is gathered and multiplied
    gathered: int  # rows of all blocks
    #: the slot that is multiplied without gathering: its rows are those of the features
    identity: Block | None

    @property
    def products(self) -> tuple[Block, ...]:
        """All that is multiplied; the identity comes last."""
        return self.blocks if self.identity is None else (*self.blocks, self.identity)

    @property
    def rows(self) -> int:
        """Rows of all products."""
        return self.gathered if self.identity is None else self.identity.end


def padded_buffer(
    offsets: tuple[int, ...], grouping: Grouping, identity: int, mirrored: bool
) -> PaddedBuffer:
    """Place the slots of every group one after another, each padded to the longest."""
    volume = len(offsets) - 1
    sizes = [end - start for start, end in pairwise(offsets)]
    shifts, blocks, start = [0] * volume, [], 0
    for group in grouping.groups(sizes, identity):
        slots = group.slots[::-1] if mirrored else group.slots
        weights = tuple(volume - 1 - k if mirrored else k for k in slots)
        blocks.append(Block(slots, weights, start, group.rows))
        for number, slot in enumerate(slots):
            shifts[slot] = start + number * group.rows - offsets[slot]
        start = blocks[-1].end
    apart = None
    if identity >= 0:
        shifts[identity] = start - offsets[identity]
        weight = volume - 1 - identity if mirrored else identity
        apart = Block((identity,), (weight,), start, sizes[identity])
    return PaddedBuffer(offsets, tuple(shifts), tuple(blocks), start, apart)


@dataclass(frozen=True)
class Placement:
    """A padded buffer, and what kernels read of it."""

    place: PaddedBuffer  # the buffer
    shifts: Tensor  # place.shifts on the device, [K] int64
    order: Tensor  # the matrix of every slot of the products, [S] int64 on the device

    @cached_property
    def padding(self) -> Tensor:
        """``[P]`` int64, the rows that belong to no triplet, on the device."""
        moved, counts, total, place = [], [], 0, self.place
        for block in place.blocks:
            for number, slot in enumerate(block.slots, 1):
                first = place.offsets[slot + 1] + place.shifts[slot]
                counts.append(block.start + number * block.rows - first)
                moved.append(first - total)
                total += counts[-1]
        before, sizes = upload([moved, counts], self.shifts.device)
        rows = torch.arange(total, device=self.shifts.device)
        return rows.add_(before.repeat_interleave(sizes, output_size=total))

    def matrices(self, all_matrices: Tensor) -> list[Tensor]:
        """The matrices ``[S, ...]`` of every product, of those of all slots ``[K, ...]``."""
        sizes = [len(block.slots) for block in self.place.products]
        return list(all_matrices.index_select(0, self.order).split(sizes))


#: By the offsets of a map: they are freed with it, and so are its placements.
_KEPT = WeakIdKeyDictionary()


def placement(
    offsets: Tensor, grouping: Grouping, identity: int, mirrored: bool, device: torch.device
) -> Placement:
    """The placement of a map's slots, made at the first request."""
    kept: dict[object, Placement] | None = _KEPT.get(offsets)
    if kept is None:
        kept = _KEPT[offsets] = {}
    key = grouping, identity, mirrored, device
    found = kept.get(key)
    if found is None:
        place = padded_buffer(tuple(offsets.tolist()), grouping, identity, mirrored)
        weights = [weight for block in place.products for weight in block.weights]
        found = kept[key] = Placement(place, upload(place.shifts, device), upload(weights, device))
    return found


def upload(numbers: object, device: torch.device) -> Tensor:
    """A few integers as int64 on a device; the host does not wait for the copy."""
    return torch.tensor(numbers, dtype=torch.int64).to(device, non_blocking=True)


def multiply_slots(
    gathered: Tensor, first: int, matrices: Tensor, products: Tensor, place: int, rows: int
) -> None:
    """``products = gathered @ matrices`` for some slots of equal length."""
    count = matrices.shape[0]
    if matrices.ndim == 3:
        if count == 1:
            out = products.narrow(0, place, rows)
            torch.mm(gathered.narrow(0, first, rows), matrices[0], out=out)
        else:
            left = _slots(gathered, first, count, rows)
            torch.bmm(left, matrices, out=_slots(products, place, count, rows))
        return
    groups, _, width = matrices.shape[1:]
    left = _by_group(gathered[first : first + count * rows], count, groups)  # [S * G, R, A]
    right = matrices.flatten(0, 1)  # [S * G, A, C]
    found = products.new_empty(count * groups, rows, width)
    torch.bmm(left, right, out=found)  # which autocast leaves alone
    found = found.unflatten(0, (count, groups)).transpose(1, 2)
    _slots(products, place, count, rows).unflatten(2, (groups, width)).copy_(found)


def _slots(buffer: Tensor, first: int, count: int, rows: int) -> Tensor:
    """``[S, R, C]`` of the rows of S slots in a contiguous buffer, in one call."""
    width = buffer.shape[1]
    start = buffer.storage_offset() + first * width
    return buffer.as_strided((count, rows, width), (rows * width, width, 1), start)


def reduce_block(
    operands: Sequence[Tensor], block: Block, groups: int, parts: list[Tensor]
) -> None:
    """``parts[k] = left[slot]^T @ right[slot]`` for the slots of one block."""
    left, right = (_by_group(side, len(block.slots), groups) for side in operands)
    found = reduced_product(left, right, parts[0].dtype)
    found = found.unflatten(0, (len(block.slots), groups))
    for k, part in zip(block.weights, found.unbind(), strict=True):
        parts[k] = part


def _by_group(buffer: Tensor, count: int, groups: int) -> Tensor:
    """``[S * G, R, A]`` of ``[S * R, G * A]``; a view where there is one group."""
    shape = count, buffer.shape[0] // count, groups, buffer.shape[1] // groups
    return buffer.view(shape).transpose(1, 2).flatten(0, 1)
