"""The kernel maps that a geometry keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch

from pcnn.geometry.kernel import Kernel
from pcnn.geometry.kernel_map import KernelMap

if TYPE_CHECKING:
    from pcnn.geometry.geometries import Geometry

Maps = dict[tuple[Any, ...], KernelMap]


class MapCache:
    """Kernel maps from one geometry, by output geometry and kernel.

    Nothing here refers to a geometry, so that no geometry keeps another alive: a relative is known
    by how it was derived, any other one by a weak reference. Relatives' maps lie in plain
    dictionaries whose keys are equal in every batch: `torch.compile` reads them.
    """

    def __init__(self) -> None:
        self._near: dict[tuple[Any, ...], Maps] = {}
        self._far: WeakKeyDictionary[Geometry, Maps] = WeakKeyDictionary()

    def of(self, source: Geometry, out: Geometry) -> Maps:
        """Maps to one geometry, by the key they were added under; none, if there are none yet.

        Args:
            source: the geometry that keeps the maps.
            out: the output geometry.
        """
        place = _place(source, out)
        return self._far.get(out, {}) if place is None else self._near.get(place, {})

    def add(
        self,
        source: Geometry,
        out: Geometry,
        kernel: Kernel,
        built: KernelMap,
        key: tuple[Any, ...] | None = None,
    ) -> KernelMap:
        """Keep a map; the one that is there already stays.

        Args:
            source: as in `of`.
            out: as in `of`.
            kernel: the relation.
            built: the map.
            key: all that decides about the triplets; ``None`` means `Kernel.key`.

        Raises:
            ValueError: a map of other rows or slots.
        """
        made_for, wanted = (built.n_in, built.n_out, built.volume), (source.rows, out.rows)
        if made_for != (*wanted, kernel.volume):
            raise ValueError(
                f"a map of {made_for[2]} slots from {made_for[0]} to {made_for[1]} rows is none of "
                f"{kernel.volume} slots from {wanted[0]} to {wanted[1]} rows; build it for these "
                "sites and this kernel"
            )
        key = kernel.key if key is None else key
        # a map knows what its slots are: the kernel's size, and the L1 norms of their offsets
        built.edges.layouts.setdefault(("kernel_size", False), kernel.size_layout)
        built.edges.layouts.setdefault(("slot_norms", False), kernel.norm_layout)
        place = _place(source, out)
        if place is None:
            return self._far.setdefault(out, {}).setdefault(key, built)
        return self._near.setdefault(place, {}).setdefault(key, built)

    def all(self) -> list[KernelMap]:
        """All maps."""
        parts = [*self._near.values(), *self._far.values()]
        return [built for maps in parts for built in maps.values()]


def check_new_map(source: Geometry, out: Geometry, kernel: Kernel, anywhere: bool = False) -> None:
    """Refuse a map that cannot be built, before a builder is called.

    Args:
        source: input geometry.
        out: output geometry; its tensor stride is the input's times the kernel's stride.
        kernel: the relation.
        anywhere: whether a kernel of stride 1 may lie around points of any spacing.

    Raises:
        ValueError: strides that do not fit, or another number of clouds.
        RuntimeError: the call is being compiled.
    """
    if torch.compiler.is_compiling():
        raise RuntimeError(
            f"the kernel map of {kernel} was not planned, and maps are not built in compiled "
            "code; call pcnn.plan(model, geometry) first"
        )
    expected = tuple(t * s for t, s in zip(source.tensor_stride, kernel.stride, strict=True))
    if not (anywhere and not kernel.is_strided) and out.tensor_stride != expected:
        raise ValueError(
            f"a kernel of stride {kernel.stride} takes tensor stride {source.tensor_stride} to "
            f"{expected}, but the output sites have {out.tensor_stride}"
        )
    if out.batch_size != source.batch_size:
        raise ValueError(
            f"input holds {source.batch_size} clouds, the output sites {out.batch_size}"
        )


def _place(source: Geometry, out: Geometry) -> tuple[Any, ...] | None:
    """What ``out`` is to ``source``, if one was derived from the other."""
    if out is source:
        return ("itself",)
    for key, level in source._levels.items():
        if level is out:
            return ("below", *key)
    for key, level in out._levels.items():
        if level is source:
            return ("above", *key)
    return None
