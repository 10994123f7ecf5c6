"""The set of triplets of a convolution and the memory layouts dataflows read it in.

The canonical layout is ``pairs``: input and output row of every triplet, sorted by slot. The other
layouts are derived once, when a dataflow asks for them by name:

* ``table``: ``[N_out, K]`` input row of every slot, -1 where empty; only for maps in which at most
  one input fills a slot of an output.
* ``rows_csr``: triplets sorted by output row, for reductions that own an output row.
* ``tiles``: output rows ordered by the Gray code of their slot mask, and the slots every tile of
  rows touches, for implicit GEMM over the table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

#: Largest neighbour table that is built, in bytes; beyond it only pairs serve.
TABLE_BUDGET_BYTES = 4 << 30

#: Output rows of a tile of the ``tiles`` layout.
TILE_ROWS = 64


@dataclass(frozen=True, eq=False)
class KernelMap:
    """Triplets ``(i, j, k)`` of one convolution: ``out[i] += x[j] @ W[k]``.

    Args:
        in_index: ``[T]`` int32, row j of the input.
        out_index: ``[T]`` int32, row i of the output; ascending within a slot of a forward map.
        offsets: ``[K + 1]`` int64 on the host: triplets of slot k are ``offsets[k]..offsets[k+1]``.
        n_in: rows of the input geometry.
        n_out: rows of the output geometry.
        one_per_slot: at most one input fills a slot of an output.
        one_per_slot_transposed: at most one output fills a slot of an input.
    """

    in_index: Tensor
    out_index: Tensor
    offsets: Tensor
    n_in: int
    n_out: int
    one_per_slot: bool = True
    one_per_slot_transposed: bool = True
    _layouts: dict[str, tuple[Tensor, ...]] = field(default_factory=dict, repr=False)
    _transposed: list[KernelMap] = field(default_factory=list, repr=False)

    @property
    def volume(self) -> int:
        """Number of kernel slots K."""
        return self.offsets.shape[0] - 1

    @property
    def triplets(self) -> int:
        """Number of triplets T."""
        return self.in_index.shape[0]

    @property
    def slot_index(self) -> Tensor:
        """``[T]`` int64 slot of every triplet."""
        counts = (self.offsets[1:] - self.offsets[:-1]).to(self.in_index.device)
        slots = torch.arange(self.volume, device=self.in_index.device)
        return torch.repeat_interleave(slots, counts, output_size=self.triplets)

    def transpose(self) -> KernelMap:
        """The same triplets read backwards: input and output change places, slots stay.

        Costs nothing: the pairs are shared. The result is kept, so that layouts derived for one
        backward pass serve the next one.
        """
        if not self._transposed:
            self._transposed.append(
                KernelMap(
                    self.out_index,
                    self.in_index,
                    self.offsets,
                    self.n_out,
                    self.n_in,
                    self.one_per_slot_transposed,
                    self.one_per_slot,
                )
            )
        return self._transposed[0]

    def layout(self, name: str) -> tuple[Tensor, ...]:
        """Return the tensors of a layout, deriving them at the first request.

        Args:
            name: ``pairs``: (in_index, out_index, offsets). ``table``: (table,).
                ``rows_csr``: (in_index, slot_index, row_offsets ``[N_out + 1]`` int64), sorted by
                output row, then slot. ``tiles``: (row order ``[N_out]`` int64, masks
                ``[N_out, ceil(K / 31)]`` int32, slots of all tiles ``[S]`` int32, offsets of each
                tile's slots ``[tiles + 1]`` int64).

        Raises:
            ValueError: unknown name, or a table that cannot exist or exceeds the memory budget.
        """
        if name == "pairs":
            return self.in_index, self.out_index, self.offsets
        builders: dict[str, Callable[[], tuple[Tensor, ...]]] = {
            "table": self._table,
            "rows_csr": self._rows_csr,
            "tiles": self._tiles,
        }
        if name not in builders:
            raise ValueError(f"unknown layout {name!r}; there are pairs, {', '.join(builders)}")
        if name not in self._layouts:
            self._layouts[name] = builders[name]()
        return self._layouts[name]

    def _table(self) -> tuple[Tensor, ...]:
        if not self.one_per_slot:
            raise ValueError(
                "this kernel map has slots with several inputs, so it has no neighbour table; use "
                "the layouts pairs or rows_csr"
            )
        size = 4 * self.n_out * self.volume
        if size > TABLE_BUDGET_BYTES:
            raise ValueError(
                f"a neighbour table of {self.n_out} rows x {self.volume} slots takes {size} bytes, "
                f"over the budget of {TABLE_BUDGET_BYTES}; use the layout pairs"
            )
        table = self.in_index.new_full((self.n_out * self.volume,), -1)
        table[self.out_index.long() * self.volume + self.slot_index] = self.in_index
        return (table.view(self.n_out, self.volume),)

    def _rows_csr(self) -> tuple[Tensor, ...]:
        # stable: triplets are sorted by slot already, so within a row slots stay ascending
        order = torch.argsort(self.out_index, stable=True)
        counts = torch.bincount(self.out_index.long(), minlength=self.n_out)
        row_offsets = counts.new_zeros(self.n_out + 1)
        torch.cumsum(counts, 0, out=row_offsets[1:])
        return self.in_index[order], self.slot_index[order].to(torch.int32), row_offsets

    def _tiles(self) -> tuple[Tensor, ...]:
        occupied = self.layout("table")[0] >= 0  # [N_out, K]
        masks = torch.stack([_bits(chunk) for chunk in occupied.split(31, dim=1)], dim=1)
        order = torch.arange(self.n_out, device=masks.device)
        for word in reversed(masks.unbind(1)):  # least significant word first: a radix sort
            order = order[torch.argsort(_gray_rank(word)[order], stable=True)]
        touched = [rows.any(0) for rows in occupied[order].split(TILE_ROWS)]
        per_tile = torch.stack(touched) if touched else occupied.new_zeros(0, self.volume)
        tile, slots = per_tile.nonzero(as_tuple=True)
        counts = torch.bincount(tile, minlength=per_tile.shape[0])
        tile_offsets = counts.new_zeros(per_tile.shape[0] + 1)
        torch.cumsum(counts, 0, out=tile_offsets[1:])
        return order, masks.to(torch.int32), slots.to(torch.int32), tile_offsets

    def validate(self) -> None:
        """Check every claim the map makes about itself; a debugging aid, never run in training.

        Raises:
            ValueError: an index out of range, unsorted offsets, or a slot filled more than once
                where ``one_per_slot`` says otherwise.
        """
        if int(self.offsets[0]) != 0 or int(self.offsets[-1]) != self.triplets:
            raise ValueError("kernel map: offsets do not cover the triplets")
        if bool((self.offsets[1:] < self.offsets[:-1]).any()):
            raise ValueError("kernel map: offsets decrease")
        sides = [("in_index", self.in_index, self.n_in), ("out_index", self.out_index, self.n_out)]
        for name, index, rows in sides:
            if index.numel() and not 0 <= int(index.min()) <= int(index.max()) < rows:
                raise ValueError(f"kernel map: {name} leaves 0..{rows - 1}")
        claims = [
            ("one_per_slot", self.one_per_slot, self.out_index, self.n_out),
            ("one_per_slot_transposed", self.one_per_slot_transposed, self.in_index, self.n_in),
        ]
        for name, claimed, index, _ in claims:
            places = index.long() * self.volume + self.slot_index
            if claimed and torch.unique(places).numel() != places.numel():
                raise ValueError(f"kernel map: {name} is claimed, but a slot is filled twice")


def _bits(occupied: Tensor) -> Tensor:
    """Bitmask ``[N]`` int64 of up to 31 boolean columns, column 0 in the lowest bit."""
    weights = 2 ** torch.arange(occupied.shape[1], device=occupied.device)
    return (occupied.to(torch.int64) * weights).sum(1)


def _gray_rank(mask: Tensor) -> Tensor:
    """Position of a mask in the Gray code order: neighbours in this order differ in few slots."""
    rank = mask.clone()
    for shift in (1, 2, 4, 8, 16):
        rank ^= rank >> shift
    return rank
