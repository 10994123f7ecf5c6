"""Gather, multiply, scatter: the dataflow of MinkowskiEngine, TorchSparse and Minuet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from pcnn.dataflows.grouping import Adaptive, Grouping, Sorted
from pcnn.dataflows.padded_buffer import (
    Placement,
    multiply_slots,
    placement,
    reduce_block,
)
from pcnn.dataflows.torch_sums import (
    Reference,
    has_wide_products,
    join,
    joined_groups,
    kernels_serve,
    per_group,
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
