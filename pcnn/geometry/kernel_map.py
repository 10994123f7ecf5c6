"""The set of triplets of a convolution, in one order and in the layouts dataflows ask for.

The canonical order is ``pairs``: input and output row of every triplet, sorted by slot. The other
layouts (`pcnn.geometry.layouts`) are derived once, when a dataflow asks for them by name.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from pcnn.geometry.layouts import LAYOUTS, mirrored_blocks


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
        symmetric: ``(i, j, k)`` implies ``(j, i, K - 1 - k)``: the map serves as its own transpose.
    """

    in_index: Tensor
    out_index: Tensor
    offsets: Tensor
    n_in: int
    n_out: int
    one_per_slot: bool = True
    one_per_slot_transposed: bool = True
    symmetric: bool = False
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
            exchanged = KernelMap(
                self.out_index,
                self.in_index,
                self.offsets,
                self.n_out,
                self.n_in,
                self.one_per_slot_transposed,
                self.one_per_slot,
                self.symmetric,
            )
            if self.symmetric and "blocks" in self._layouts:
                exchanged._layouts["blocks"] = mirrored_blocks(self._layouts["blocks"])
            self._transposed.append(exchanged)
        return self._transposed[0]

    def layout(self, name: str) -> tuple[Tensor, ...]:
        """Return the tensors of a layout, deriving them at the first request.

        Args:
            name: ``pairs``, ``table``, ``rows_csr``, ``blocks`` or ``tiles``; what each holds is
                said at the function of that name in `pcnn.geometry.layouts`.

        Raises:
            ValueError: unknown name, or a table that cannot exist or exceeds the memory budget.
        """
        if name not in LAYOUTS:
            raise ValueError(f"unknown layout {name!r}; there are {', '.join(LAYOUTS)}")
        if name not in self._layouts:
            self._layouts[name] = LAYOUTS[name](self)
        return self._layouts[name]

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
        sides = (
            ("out_index", self.out_index, self.n_out, self.one_per_slot),
            ("in_index", self.in_index, self.n_in, self.one_per_slot_transposed),
        )
        for name, index, rows, unique in sides:
            if index.numel() and not 0 <= int(index.min()) <= int(index.max()) < rows:
                raise ValueError(f"kernel map: {name} leaves 0..{rows - 1}")
            places = index.long() * self.volume + self.slot_index
            if unique and torch.unique(places).numel() != places.numel():
                raise ValueError(f"kernel map: {name} claims one triplet a slot, but has several")
