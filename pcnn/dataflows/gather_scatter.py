"""Gather, multiply, scatter: the dataflow of MinkowskiEngine, TorchSparse and Minuet."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from pcnn.dataflows import outer_products
from pcnn.dataflows.epilogue import Epilogue
from pcnn.dataflows.grouped_product import multiply_block, reduce_block, run_on_streams
from pcnn.dataflows.grouping import Adaptive, Grouping, Sorted
from pcnn.dataflows.padded_buffer import padded_buffer
from pcnn.dataflows.reduced_product import has_wide_products
from pcnn.dataflows.reference import accumulator, per_group
from pcnn.dataflows.row_movement import KernelRows, Side, TorchRows, Triplets, upload

#: The grouping of TorchSparse until its tolerance and threshold are searched for a layer.
ADAPTIVE = Adaptive(0.25)


@dataclass(frozen=True, eq=False)
class Stage:
    """Launches of one gather, the products of what was gathered, and one scatter."""

    gather: Callable[[], object]
    multiply: Callable[[], object]
    scatter: Callable[[], object]


def _nothing() -> None:
    """A phase that has nothing to do."""


def uses_kernels(x: Tensor) -> bool:
    """Whether Triton kernels move the rows of a tensor; elsewhere torch does."""
    return x.is_cuda


@dataclass(frozen=True)
class GatherScatter:
    """Weight-stationary products of gathered rows, by torch's own matrix multiplication.

    ``X[p] = x[j]`` for all triplets (i, j, k), by slot; ``Y = X[slot k] @ W[k]``; ``out[i]`` sums
    its rows of Y. The two buffers hold T x C_in and T x C_out values and some padding, by nature.

    On a GPU, rows are moved by Triton kernels. Every optimisation can be switched off, which gives
    the steps of TorchSparse's Tables 2 and 3; its first step, float32, is ``compute_dtype``. On
    other devices torch's index operations do the same, and only the grouping matters there.

    Sums are float32 (float64 of float64): inside the products, and when rows are scattered. Between
    the two, a product is rounded to the buffer's dtype: with ``products="compute"`` a float16
    product beyond 65504 overflows even where the sum would not, and an output row carries one
    rounding more. Float64 is served everywhere.

    A transposed weight is read through its strides. Matrices are copied only to a group whose slots
    are not evenly spaced.

    Sources: TorchSparse (MLSys 2022) sections 4.2, 4.3; Minuet (EuroSys 2024) section 5.2.
    Deviation: in the slots' order sums are float32 in memory, where TorchSparse has float16.

    Args:
        grouping: which slots are multiplied together.
        fused: gather all slots before the products and scatter all after them, one launch each;
            otherwise slots are gathered and scattered one by one, group by group (Algorithm 2).
        locality: gather in the order of input rows and scatter in the order of output rows;
            otherwise in the order of the slots, and the sums are atomic. Needs ``fused``.
        vectorised: threads move 16 bytes at once; otherwise one channel.
        identity: multiply the centre of a submanifold convolution without gathering it.
        products: dtype of the buffer of products: the compute dtype, or float32 (torch 2.8 and
            later on a GPU).
        gather_tile: channels a program gathers, a power of two
            (`pcnn.kernels.row_tiles.tiles_of`); ``None`` for whole rows.
        scatter_tile: the same of the scatter.
        streams: streams the products of groups are spread over, where ``fused``; 1 is the current
            stream, Minuet has 4.
        weight_gradient: ``grouped`` gathers both operands and multiplies group by group;
            ``outer_products`` is the kernel of `pcnn.dataflows.outer_products` (GPU only).
    """

    grouping: Grouping = ADAPTIVE
    fused: bool = True
    locality: bool = True
    vectorised: bool = True
    identity: bool = True
    products: Literal["compute", "float32"] = "compute"
    gather_tile: int | None = None
    scatter_tile: int | None = None
    streams: int = 1
    weight_gradient: Literal["grouped", "outer_products"] = "grouped"
    fuses: bool = False

    def __post_init__(self) -> None:
        if self.locality and not self.fused:
            raise ValueError(
                "gather_scatter: locality orders the rows of all slots, which needs one launch for "
                "them; set fused=True, or locality=False"
            )
        if not 1 <= self.streams <= 4:
            raise ValueError(f"streams must be in 1..4, got {self.streams}")

    @property
    def name(self) -> str:
        """Identifier, unique per setting."""
        words = ["gather_scatter", self.grouping.name]
        words += [] if self.fused else ["per_slot"]
        words += [] if self.locality else ["slot_order"]
        words += [] if self.vectorised else ["scalar"]
        words += [] if self.identity else ["all_gathered"]
        words += [] if self.products == "compute" else ["float32_products"]
        words += [] if self.gather_tile is None else [f"gather{self.gather_tile}"]
        words += [] if self.scatter_tile is None else [f"scatter{self.scatter_tile}"]
        words += [] if self.streams == 1 else [f"{self.streams}streams"]
        words += [] if self.weight_gradient == "grouped" else [self.weight_gradient]
        return "_".join(words)

    @property
    def needs(self) -> tuple[str, ...]:
        """Layouts that ``mvmr`` reads."""
        order = ("by_in", "by_out") if self.locality else ("counts",)
        return "pairs", "identity_slot", *order

    @property
    def needs_vvor(self) -> tuple[str, ...]:
        """Layouts that ``vvor`` reads."""
        return self.needs if self.weight_gradient == "grouped" else outer_products.NEEDS_VVOR

    @property
    def deterministic(self) -> bool:
        """Whether two runs give identical bits: only the order of the slots has atomics."""
        return self.locality

    def mvmr(
        self,
        x: Tensor,
        weight: Tensor,
        layouts: Sequence[Tensor],
        n_out: int,
        groups: int,
        transposed: bool,
        compute_dtype: torch.dtype,
        out_dtype: torch.dtype,
        *,
        mirrored: bool = False,
        second: Tensor | None = None,
        epilogue: Epilogue | None = None,
    ) -> Tensor:
        """See `Dataflow.mvmr`."""
        if second is not None or epilogue is not None:
            raise ValueError(
                "gather_scatter fuses neither a second source nor an epilogue: join the sources, "
                "and apply the epilogue to its result"
            )
        dtypes = compute_dtype, out_dtype
        how = n_out, groups, transposed
        sums, stages = self.stages(x, weight, layouts, *how, *dtypes, mirrored=mirrored)
        for stage in stages:
            stage.gather()
            stage.multiply()
            stage.scatter()
        return sums.to(out_dtype)

    def stages(
        self,
        x: Tensor,
        weight: Tensor,
        layouts: Sequence[Tensor],
        n_out: int,
        groups: int,
        transposed: bool,
        compute_dtype: torch.dtype,
        out_dtype: torch.dtype,
        *,
        mirrored: bool = False,
    ) -> tuple[Tensor, Iterator[Stage]]:
        """What `mvmr` does, to be run, or measured, phase by phase.

        Arguments are those of `Dataflow.mvmr`.

        Returns:
            The sums ``[n_out, C]``, ready when every stage has run, and the stages: one where
            ``fused``, else one a group of slots. Buffers of a stage are made when it is asked for.
        """
        move = self._movement(x, layouts, compute_dtype, mirrored)
        place, dtype = move.place, self._product_dtype(move.operands)
        rows = move.prepare(x)
        matrices = per_group(weight.to(compute_dtype).to(move.operands), groups)  # [K, G, A, C]
        if transposed:
            matrices = matrices.transpose(2, 3)
        channels = groups * matrices.shape[3]
        sums = move.sums(n_out, channels, out_dtype, x.device)
        if self.fused:
            return sums, iter([self._fused_stage(move, rows, matrices, sums, dtype)])

        def by_block() -> Iterator[Stage]:
            for block in place.blocks:
                size = block.end - block.start
                gathered = rows.new_empty(size, rows.shape[1], dtype=move.operands)
                products = rows.new_empty(size, channels, dtype=dtype)
                yield Stage(
                    partial(move.gather_block, rows, "in", gathered, block),
                    partial(multiply_block, gathered, matrices, products, block),
                    partial(move.scatter_block, products, block, sums),
                )
            for block in place.identity_blocks():
                products = rows.new_empty(n_out, channels, dtype=dtype)
                same = rows.to(move.operands)
                yield Stage(
                    _nothing,
                    partial(multiply_block, same, matrices, products, block),
                    partial(sums.add_, products),
                )

        return sums, by_block()

    def _fused_stage(
        self,
        move: KernelRows | TorchRows,
        rows: Tensor,
        matrices: Tensor,
        sums: Tensor,
        dtype: torch.dtype,
    ) -> Stage:
        place = move.place
        gathered = rows.new_empty(place.gathered, rows.shape[1], dtype=move.operands)
        products = rows.new_empty(place.rows, sums.shape[1], dtype=dtype)
        jobs = [
            partial(multiply_block, gathered[b.start : b.end], matrices, products[b.start :], b)
            for b in place.blocks
        ]
        for block in place.identity_blocks():
            same, last = rows.to(move.operands), products[place.gathered :]
            jobs.append(partial(multiply_block, same, matrices, last, block))
        tensors = gathered, matrices, products, rows
        return Stage(
            partial(move.gather, rows, "in", gathered),
            partial(run_on_streams, jobs, tensors, self.streams),
            partial(move.scatter, products, sums),
        )

    def vvor(
        self,
        x: Tensor,
        grad: Tensor,
        layouts: Sequence[Tensor],
        groups: int,
        compute_dtype: torch.dtype,
        out_dtype: torch.dtype,
        *,
        mirrored: bool = False,
    ) -> Tensor:
        """See `Dataflow.vvor`."""
        if self.weight_gradient == "outer_products":
            dtypes = compute_dtype, out_dtype
            return outer_products.vvor(x, grad, layouts, groups, *dtypes, mirrored=mirrored)
        move = self._movement(x, layouts, compute_dtype, mirrored)
        place, wide = move.place, accumulator(compute_dtype)
        # sums over rows leave float16's range: the results are wide, or else the operands too
        operands = move.operands if has_wide_products() else wide
        sides: tuple[tuple[Tensor, Side], ...] = (
            (move.prepare(x), "in"),
            (move.prepare(grad), "out"),
        )
        c_in, c_out = x.shape[1] // groups, grad.shape[1] // groups
        zeros = x.new_zeros(groups, c_in, c_out, dtype=wide)
        parts = [zeros] * (len(place.offsets) - 1)  # of slots without triplets
        buffers = []
        for rows, side in sides if self.fused else ():
            buffer = rows.new_empty(place.gathered, rows.shape[1], dtype=operands)
            move.gather(rows, side, buffer)
            move.clear(buffer)
            buffers.append(buffer)
        for block in place.blocks:
            if self.fused:
                pair = [buffer[block.start : block.end] for buffer in buffers]
            else:
                pair = []
                for rows, side in sides:
                    size = block.end - block.start
                    pair.append(rows.new_zeros(size, rows.shape[1], dtype=operands))
                    move.gather_block(rows, side, pair[-1], block)
            reduce_block(pair, block, groups, parts)
        for block in place.identity_blocks():
            reduce_block([rows.to(operands) for rows, _ in sides], block, groups, parts)
        out = torch.stack(parts)  # [K, G, C_in/G, C_out/G]
        # group-major output channels: [K, C_in/G, G * C_out/G]
        return out.transpose(1, 2).reshape(len(parts), c_in, groups * c_out).to(out_dtype)

    def _movement(
        self, x: Tensor, layouts: Sequence[Tensor], compute_dtype: torch.dtype, mirrored: bool
    ) -> KernelRows | TorchRows:
        """What moves the rows of a map: kernels on a GPU, torch elsewhere."""
        in_index, out_index, offsets, identity, *order = layouts
        slot = int(identity) if self.identity else -1
        place = padded_buffer(tuple(offsets.tolist()), self.grouping, slot, mirrored)
        if not uses_kernels(x):
            return TorchRows(place, Triplets(in_index, out_index), compute_dtype)
        if self.locality:
            a, b, c, d, e, f = order
            triplets = Triplets(in_index, out_index, (a, b, c), (d, e, f))
        else:
            triplets = Triplets(in_index, out_index, counts=order[0])
        tiles = self.gather_tile, self.scatter_tile
        shifts = upload(place.shifts, x.device)
        return KernelRows(place, triplets, compute_dtype, shifts, self.vectorised, *tiles)

    def _product_dtype(self, operands: torch.dtype) -> torch.dtype:
        """Dtype of the buffer of products.

        Raises:
            ValueError: float32 products of half precision operands, in a torch that has none.
        """
        if self.products == "compute" or operands.itemsize > 2:
            return operands
        if not has_wide_products():
            raise ValueError(
                "float32 products of half precision operands need torch 2.8; use "
                'GatherScatter(products="compute")'
            )
        return torch.float32


#: TorchSparse (MLSys 2022). The paper searches tolerance and threshold for each layer
#: (`pcnn.dataflows.gather_scatter_search.searched`); on scans these give its average padding.
TORCHSPARSE = GatherScatter(ADAPTIVE)

#: Minuet (EuroSys 2024). The paper searches padding threshold and tiles for each layer.
MINUET = GatherScatter(Sorted(0.15), streams=4)
