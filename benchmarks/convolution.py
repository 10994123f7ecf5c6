"""One convolution with fixed random operands, by an engine of ours or an installed package."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor

from benchmarks import check
from benchmarks.peers.base import Peer, PeerTensor, in_our_order
from benchmarks.rows import Row
from benchmarks.run import Prepare, same
from pcnn.geometry import Geometry, Kernel, KernelMap, VoxelGrid
from pcnn.kernels.conv_spec import tf32_products
from pcnn.nn import Conv3d
from pcnn.ops.convolution import convolution
from pcnn.ops.engine import Engine
from pcnn.ops.sites import output_sites
from pcnn.runtime.timing import Call

G = TypeVar("G", bound=Geometry)

#: Kinds of times: on an existing map, or with a new one from the sorted keys.
KINDS = ("layer", "train", "map+layer", "map+train")
BACKWARD = ("backward", "train", "map+train")
WITH_MAP = ("map+layer", "map+train")
NAMES = ("out", "grad_x", "grad_weight")  # results of a call with forward and backward


@dataclass(frozen=True)
class Shape:
    c_in: int
    c_out: int
    size: int
    stride: int = 1

    @property
    def kernel(self) -> Kernel:
        return Kernel.of(self.size, self.stride)


def shapes(words: Iterable[str]) -> list[Shape]:
    """Layers of ``c_in:c_out:size`` or ``c_in:c_out:size:stride``, with commas between several."""
    parts = [one for word in words for one in word.split(",")]
    return [Shape(*map(int, part.split(":"))) for part in parts]


@dataclass(frozen=True, eq=False)
class Place:
    workload: str  # name of the scene
    grid: Geometry  # its voxels or points, on the device
    kernel: Kernel  # the relation, on native points of stride 1

    @cached_property
    def target(self) -> Geometry:
        return self.grid.strided(self.kernel) if isinstance(self.grid, VoxelGrid) else self.grid

    @cached_property
    def pairs(self) -> list[check.Pair]:
        return check.triplets(self.grid, self.target, self.kernel)

    @property
    def triplets(self) -> int:
        return sum(len(j) for j, _ in self.pairs)

    @property
    def longest(self) -> int:
        """Triplets of the slot that has most: terms of its weights' gradient."""
        return max(len(j) for j, _ in self.pairs)

    def row(self, what: str, engine: str, figure: str, **keys: Any) -> Row:
        reached = getattr(self.grid, "downsampling", "floor") == "reached"
        sites = {"sites": "reached"} if reached else {}
        return {
            "figure": figure,
            "what": what,
            "workload": self.workload,
            "engine": engine,
            "n": self.grid.rows,
            "triplets": self.triplets,
            "k": self.kernel.size[0],
            "stride": self.kernel.stride[0],
            **sites,
            **keys,
        }


def bare(sites: G) -> G:
    """The same sites without the levels and maps that are cached on them."""
    return copy.copy(sites)


def products_of(dtype: str) -> AbstractContextManager[None]:
    """Allow TF32 products for the dtype ``tf32``, and forbid them for all others."""
    return tf32_products(dtype == check.TF32)


def torch_dtype(name: str) -> torch.dtype:
    """Dtype of tensors of a name; ``tf32`` is float32 in memory."""
    found: torch.dtype = torch.float32 if name == check.TF32 else getattr(torch, name)
    return found


@dataclass(frozen=True, eq=False)
class Operands:
    x: Tensor  # `[N_in, C_in]`
    weight: Tensor  # `[K, C_in, C_out]`, which keeps the scale
    grad: Tensor  # `[N_out, C_out]`, gradient with respect to the output
    dtype: str  # name of their dtype

    @classmethod
    def at(cls, place: Place, shape: Shape, dtype: str) -> Operands:
        """Random operands of a layer at a place, made on its device."""
        device, volume = place.grid.device, place.kernel.volume
        random = torch.Generator(device).manual_seed(0)

        def operand(*size: int, scale: float = 1.0) -> Tensor:
            values = scale * torch.randn(size, generator=random, device=device)
            return values.to(torch_dtype(dtype))

        x = operand(place.grid.rows, shape.c_in).requires_grad_()
        weight = operand(volume, shape.c_in, shape.c_out, scale=(volume * shape.c_in) ** -0.5)
        grad = operand(place.target.rows, shape.c_out)
        return cls(x, weight.requires_grad_(), grad, dtype)

    def truth(self, place: Place, backward: bool) -> check.Tensors:
        return check.products(place.pairs, self.x, self.weight, self.grad, backward)


class Layer:
    def __init__(self, engine: Engine, place: Place, operands: Operands) -> None:
        self.engine, self.place, self.operands = engine, place, operands
        self.map = new_map(engine, place.grid, place.kernel)
        self.dataflow = engine.choose(self.map, place.grid.device)

    @property
    def weight(self) -> Tensor:
        return self.operands.weight

    def _output(self, built: KernelMap) -> Tensor:
        return convolution(self.operands.x, self.weight, built, self.engine)

    @torch.no_grad()
    def forward(self, x: Any) -> tuple[Tensor]:
        return (self._output(x),)

    def train(self, x: Any) -> tuple[Tensor, ...]:
        out, own = self._output(x), self.operands
        return out, *torch.autograd.grad(out, (own.x, self.weight), own.grad)

    def prepare(self, kind: str) -> Prepare:
        """Calls of a kind; what builds a map finds sites without levels and maps."""
        own = self.operands
        if kind == "backward":
            out = self._output(self.map)
            inputs = own.x, own.weight
            return same(lambda: torch.autograd.grad(out, inputs, own.grad, retain_graph=True))
        step = self.train if kind in BACKWARD else self.forward
        if kind not in WITH_MAP:
            return same(lambda: step(self.map))

        def prepared() -> Call:
            sites = bare(self.place.grid)
            return lambda: step(new_map(self.engine, sites, self.place.kernel))

        return prepared

    def results(self, kind: str) -> check.Tensors:
        found: Any = self.prepare(kind)()()
        return dict(zip(NAMES[1:] if kind == "backward" else NAMES, found, strict=False))


def new_map(engine: Engine, source: Geometry, kernel: Kernel) -> KernelMap:
    """The map that a layer of an engine would find on sites without levels and maps."""
    sites = bare(source)
    return sites.kernel_map(output_sites(sites, kernel), kernel, engine)


class InstalledLayer(Layer):
    """One convolution of a package, with the operands that ours has; on voxels alone."""

    def __init__(self, peer: Peer, place: Place, operands: Operands) -> None:
        kernel = place.kernel
        peer.require(operands.dtype)
        peer.require_sites(kernel, place.grid.downsampling)
        self.peer, self.kernel, self.operands = peer, kernel, operands
        channels = operands.x.shape[1], operands.grad.shape[1]
        rest = kernel.size, kernel.stride, kernel.padding, kernel.dilation
        ours = Conv3d(*channels, *rest, bias=False).to(operands.x.device)
        ours.weight.data = operands.weight.detach()
        self.layer = peer.layer(ours)
        self.prepared = peer.prepared(place.grid.coords, place.grid.batch_size)
        self._in_order = False

    @property
    def weight(self) -> Tensor:
        return self.layer.weight

    def _output(self, x: PeerTensor) -> Tensor:
        y = self.layer.train(torch.is_grad_enabled())(x)
        found: Tensor = y.features
        return found[in_our_order(y.geometry.coords())] if self._in_order else found

    def prepare(self, kind: str) -> Prepare:
        """Calls of a kind, as of `Layer`; ValueError where the package cannot do so."""
        name = self.peer.name
        if kind in WITH_MAP and not self.peer.builds_maps:
            raise ValueError(f"{name} is given our map of voxels: compare layer and train")
        step = self.train if kind.endswith("train") else self.forward

        def prepared() -> Call:
            x = self.peer.tensor(self.prepared, self.operands.x)
            return lambda: step(x)

        if kind in WITH_MAP:
            return prepared
        if self.kernel.is_strided and not self.peer.keeps_strided_maps:
            raise ValueError(f"{name} builds strided maps in every call: compare map+{kind}")
        call = prepared()
        call()
        return same(call)

    def results(self, kind: str) -> check.Tensors:
        self._in_order = True
        named = super().results(kind)
        self._in_order = False
        if "grad_weight" in named:
            named["grad_weight"] = self.layer.in_ours(named["grad_weight"])
        return named
