"""The set of triplets of a convolution, in the layouts dataflows ask for.

An edge set is stored once, in whatever layout its builder wrote; every other layout
(`pcnn.geometry.layouts`) is derived from it at the first request by name, and kept. A
`KernelMap` looks at an edge set from one of its two sides: forwards, or transposed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from pcnn.geometry.layouts import LAYOUTS, Layout, derived, has_steps

if TYPE_CHECKING:
    from pcnn.geometry.kernel_slots import Kernel


def outside_inference_mode() -> AbstractContextManager[object]:
    """Where levels, maps and layouts are made that stay."""
    if torch.is_inference_mode_enabled():
        return torch.inference_mode(False)
    return nullcontext()


def one_line(thing: object, **facts: Any) -> str:
    """``Name(fact=value, ...)``: what the host knows, as a dataclass prints itself."""
    inside = ", ".join(f"{name}={value}" for name, value in facts.items())
    return f"{type(thing).__name__}({inside})"


def per_axis(values: Sequence[float]) -> str:
    """A number for each axis: one where they agree, else three."""
    return f"{values[0]:g}" if len(set(values)) == 1 else f"({', '.join(f'{v:g}' for v in values)})"


class LayoutUse(NamedTuple):
    """Layouts that one operation reads of a map, by name."""

    flipped: bool  # whether the operation ran over the transposed map
    forward: tuple[str, ...]  # layouts of the side it ran over
    backward: tuple[str, ...] = ()  # layouts of the same side that its backward reads besides
    transposed: tuple[str, ...] = ()  # layouts of the other side that its backward reads


@dataclass(eq=False)
class EdgeSet:
    """The edge set that both views of a kernel map share."""

    rows: tuple[int, int]  # rows of the (input, output) geometry
    volume: int  # number of kernel slots K
    #: whether at most one input fills a slot of an output, and one output a slot of an input
    one_per_slot: tuple[bool, bool]
    symmetric: bool  # (i, j, k) implies (j, i, K - 1 - k)
    #: layouts that this edge set derives in its own way, by name; others as in `LAYOUTS`
    derive: Mapping[str, Callable[[KernelMap], Layout]] = field(default_factory=dict)
    #: ``[1]`` int32 on the device, rows of the (input, output) geometry that hold a site; ``None``:
    #: all rows do. Spare rows have no triplets.
    counts: tuple[Tensor | None, Tensor | None] = (None, None)
    kernel: Kernel | None = None  # whose slots they are; a geometry says it of the maps it keeps
    #: what is there already, by (name, whether of the transposed map)
    layouts: dict[tuple[str, bool], Layout] = field(default_factory=dict, repr=False)
    lists: dict[tuple[object, ...], list[Tensor]] = field(
        default_factory=dict, init=False, repr=False
    )
    uses: set[LayoutUse] = field(default_factory=set, init=False, repr=False)

    def __post_init__(self) -> None:
        # what a copy with other claims derives is no business of the one it was copied from
        self.layouts = dict(self.layouts)


@dataclass(frozen=True)
class KernelMap:
    """Triplets ``(i, j, k)`` of one convolution: ``out[i] += x[j] @ W[k]``.

    Made by `from_pairs` or `from_table`. Every view of an edge set equals every other
    of the same side.

    Args:
        edges: the triplets.
        flipped: whether inputs and outputs have changed places.
    """

    edges: EdgeSet
    flipped: bool = False

    @classmethod
    def from_pairs(
        cls,
        in_index: Tensor,
        out_index: Tensor,
        offsets: Tensor,
        n_in: int,
        n_out: int,
        one_per_slot: bool = True,
        one_per_slot_transposed: bool = True,
        symmetric: bool = False,
        derive: Mapping[str, Callable[[KernelMap], Layout]] | None = None,
    ) -> KernelMap:
        """Kernel map of triplets listed by slot.

        Args:
            in_index: ``[T]`` int32, row j of the input.
            out_index: ``[T]`` int32, row i of the output; ascending within a slot.
            offsets: ``[K + 1]`` int64 on the host: triplets of slot k are
                ``offsets[k]..offsets[k + 1]``.
            n_in: rows of the input geometry.
            n_out: rows of the output geometry.
            one_per_slot: at most one input fills a slot of an output.
            one_per_slot_transposed: at most one output fills a slot of an input.
            symmetric: the map serves as its own transpose, slots mirrored.
            derive: as in `EdgeSet`.
        """
        unique = one_per_slot, one_per_slot_transposed
        volume = offsets.shape[0] - 1
        edges = EdgeSet((n_in, n_out), volume, unique, symmetric, derive or {})
        edges.layouts["pairs", False] = in_index, out_index, offsets
        return cls(edges)

    @classmethod
    def from_table(
        cls,
        table: Tensor,
        n_in: int,
        masks: Tensor | None = None,
        counts: Tensor | None = None,
        symmetric: bool = False,
        derive: Mapping[str, Callable[[KernelMap], Layout]] | None = None,
        row_counts: tuple[Tensor | None, Tensor | None] = (None, None),
    ) -> KernelMap:
        """Kernel map of a neighbour table; at most one input fills a slot, and the reverse.

        Args:
            table: ``[N_out, K]`` int32, input row of every slot, -1 where it is empty.
            n_in: rows of the input geometry.
            masks: ``[N_out, ceil(K / 31)]`` int32 slot masks, if known (see `layouts.masks`).
            counts: ``[K]`` int64 triplets of every slot on the table's device, if known.
            symmetric: the map serves as its own transpose, slots mirrored.
            derive: as in `EdgeSet`.
            row_counts: ``counts`` of `EdgeSet`.
        """
        n_out, volume = table.shape
        both, own = (n_in, n_out), derive or {}
        edges = EdgeSet(both, volume, (True, True), symmetric, own, counts=row_counts)
        edges.layouts["table", False] = (table,)
        if masks is not None:
            edges.layouts["masks", False] = (masks,)
        if counts is not None:
            edges.layouts["counts", False] = (counts,)
        return cls(edges)

    def __repr__(self) -> str:
        there = self.edges.layouts
        facts: dict[str, object] = {"n_in": self.n_in, "n_out": self.n_out, "volume": self.volume}
        if self.known_triplets is not None:
            facts["triplets"] = self.known_triplets
        names = ", ".join(name for name, flipped in there if flipped == self.flipped)
        return one_line(self, **facts, layouts=f"[{names}]")

    @property
    def volume(self) -> int:
        """Number of kernel slots K."""
        return self.edges.volume

    @property
    def n_in(self) -> int:
        """Rows of the input geometry."""
        return self.edges.rows[self.flipped]

    @property
    def n_out(self) -> int:
        """Rows of the output geometry."""
        return self.edges.rows[int(not self.flipped)]

    @property
    def one_per_slot(self) -> bool:
        """True if at most one input fills a slot of an output."""
        return self.edges.one_per_slot[int(self.flipped)]

    @property
    def symmetric(self) -> bool:
        """True if ``(i, j, k)`` implies ``(j, i, K - 1 - k)``: the map is its own transpose."""
        return self.edges.symmetric

    @property
    def in_index(self) -> Tensor:
        """``[T]`` int32, row j of every triplet, by slot."""
        return self.layout("pairs")[0]

    @property
    def out_index(self) -> Tensor:
        """``[T]`` int32, row i of every triplet, by slot."""
        return self.layout("pairs")[1]

    @property
    def offsets(self) -> Tensor:
        """``[K + 1]`` int64 on the host: triplets of slot k are ``offsets[k]..offsets[k + 1]``."""
        return self.layout("offsets")[0]

    @property
    def triplets(self) -> int:
        """Number of triplets T."""
        return int(self.offsets[-1])

    @property
    def slot_index(self) -> Tensor:
        """``[T]`` int64 slot of every triplet."""
        in_index, offsets = self.in_index, self.offsets
        counts = offsets[1:] - offsets[:-1]
        if in_index.is_cuda:  # from page-locked memory, so that the host does not wait
            counts = counts.pin_memory().to(in_index.device, non_blocking=True)
        slots = torch.arange(self.volume, device=in_index.device)
        return torch.repeat_interleave(slots, counts, output_size=self.triplets)

    def transpose(self) -> KernelMap:
        """The same triplets read backwards: input and output change places, slots stay."""
        return KernelMap(self.edges, not self.flipped)

    def record_use(
        self,
        forward: tuple[str, ...],
        backward: tuple[str, ...] = (),
        transposed: tuple[str, ...] = (),
    ) -> None:
        """Remember what an operation reads (`LayoutUse`), so that a plan can prepare it."""
        self.edges.uses.add(LayoutUse(self.flipped, forward, backward, transposed))

    def has(self, name: str) -> bool:
        """True if a layout is there already."""
        return (name, self.flipped) in self.edges.layouts

    def layout(self, name: str) -> Layout:
        """Tensors of a layout (`pcnn.geometry.layouts`), derived at the first request."""
        key = name, self.flipped
        if key not in self.edges.layouts:
            own = self.edges.derive.get(name)
            with outside_inference_mode():
                self.edges.layouts[key] = derived(self, name) if own is None else own(self)
        return self.edges.layouts[key]

    def drop_tables(self) -> None:
        """Give up neighbour tables and slot masks of both sides, if one has steps."""
        if has_steps(self) or has_steps(self.transpose()):
            for kind in LAYOUTS.values():
                for flipped in (False, True) if kind.replaced_by_steps else ():
                    self.edges.layouts.pop((kind.name, flipped), None)

    def layouts(self, names: tuple[str, ...]) -> list[Tensor]:
        """Tensors of several layouts in a list that is kept: what a dataflow takes."""
        key = names, self.flipped
        found = self.edges.lists.get(key)
        if found is None:
            found = [tensor for name in names for tensor in self.layout(name)]
            self.edges.lists[key] = found
        return found

    def read(
        self, forward: tuple[str, ...], backward: tuple[str, ...], entry: bool = False
    ) -> list[Tensor]:
        """The layouts of ``forward``, as `layouts` returns them; the first call records the use.

        ``backward`` are those that the backward reads besides. Where a map is not its own transpose
        that reads ``forward`` of the transpose too, but not of features that enter the network
        (``entry``): no gradient of them is asked for.
        """
        key = forward, backward, self.flipped, entry
        found = self.edges.lists.get(key)
        if found is None:
            self.record_use(forward, backward, () if self.symmetric or entry else forward)
            found = self.edges.lists[key] = self.layouts(forward)
        return found

    @property
    def known_triplets(self) -> int | None:
        """Number of triplets where the host knows it; ``None``: it would wait for the device."""
        there = self.edges.layouts
        for name in ("pairs", "offsets"):
            for side in (False, True):
                if (name, side) in there:
                    ends = there[name, side][-1]
                    # of a map in memory of fixed size the host knows the room alone
                    return None if ends.is_meta else int(ends[-1])
        return None
