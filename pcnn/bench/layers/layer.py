"""One convolution with fixed random operands, and the calls that are timed."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import Tensor

from pcnn.bench.conformance import check_engine
from pcnn.bench.harness import Call, Calls, same
from pcnn.bench.layers.setting import BACKWARD, WITH_MAP
from pcnn.bench.mapping.products import bare
from pcnn.bench.verify import TF32
from pcnn.geometry import Geometry, Kernel, KernelMap, PointSet
from pcnn.kernels.tf32 import tf32_products
from pcnn.ops.convolution import convolution
from pcnn.ops.device_rates import convolution_floor_ms
from pcnn.ops.engine import Engine
from pcnn.ops.kernel_maps import map_between
from pcnn.ops.sites import output_sites

#: Results of a call with forward and backward.
NAMES = ("out", "grad_x", "grad_weight")


def products_of(dtype: str) -> AbstractContextManager[None]:
    """Allow TF32 products for the dtype ``tf32``, and forbid them for all others."""
    return tf32_products(dtype == TF32)


def torch_dtype(name: str) -> torch.dtype:
    """Dtype of tensors of a name; ``tf32`` is float32 in memory."""
    dtype = torch.float32 if name == TF32 else getattr(torch, name)
    assert isinstance(dtype, torch.dtype)
    return dtype


@dataclass(frozen=True, eq=False)
class Operands:
    """What a convolution multiplies, the same for all engines.

    Args:
        x: ``[N_in, C_in]``.
        weight: ``[K, C_in / groups, C_out]``.
        grad: ``[N_out, C_out]``, gradient with respect to the output.
        dtype: name of their dtype; ``tf32``: float32 whose products may be rounded.
        groups: groups of channels.
    """

    x: Tensor
    weight: Tensor
    grad: Tensor
    dtype: str
    groups: int = 1

    @classmethod
    def random(
        cls,
        sizes: tuple[int, int, int],
        channels: tuple[int, int],
        dtype: str,
        device: torch.device,
        groups: int = 1,
    ) -> Operands:
        """Normal features and gradients, and weights that keep the scale.

        Args:
            sizes: rows of the input, rows of the output, kernel slots.
            channels: of input and output.
            dtype: as above.
            device: where they are made: a host takes a second for a hundred million numbers.
            groups: groups of channels.
        """
        (n_in, n_out, volume), (c_in, c_out) = sizes, channels
        random = torch.Generator(device).manual_seed(0)

        def operand(*shape: int) -> Tensor:
            return torch.randn(shape, generator=random, device=device)

        kind = torch_dtype(dtype)
        x = operand(n_in, c_in).to(kind).requires_grad_()
        terms = volume * c_in // groups
        weight = operand(volume, c_in // groups, c_out) * terms**-0.5
        weight = weight.to(kind).requires_grad_()
        return cls(x, weight, operand(n_out, c_out).to(kind), dtype, groups)


class Layer:
    """One convolution of an engine.

    Args:
        engine: finds the triplets and computes.
        source: input sites.
        kernel: the relation.
        operands: what is multiplied.

    Raises:
        CheckFailed: the engine does not pass the whole check of its builder and dataflows.
    """

    def __init__(
        self, engine: Engine, source: Geometry, kernel: Kernel, operands: Operands
    ) -> None:
        check_engine(engine, source.device, isinstance(source, PointSet))
        self.engine, self.source, self.kernel = engine, source, kernel
        self.operands = operands
        self.map = new_map(engine, source, kernel)
        self.dataflow = engine.dataflow_for(self.map, source.device)

    @torch.no_grad()
    def forward(self, built: KernelMap | None = None) -> tuple[Tensor]:
        """Output ``[N_out, C_out]`` over a map, without gradients; over the layer's own if none."""
        return (self._output(built),)

    def _output(self, built: KernelMap | None = None) -> Tensor:
        x, weight, groups = self.operands.x, self.operands.weight, self.operands.groups
        return convolution(x, weight, built or self.map, self.dataflow, groups=groups)

    def train(self, built: KernelMap | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Output and the gradients with respect to features and weights."""
        out = self._output(built)
        inputs = self.operands.x, self.operands.weight
        grad_x, grad_weight = torch.autograd.grad(out, inputs, self.operands.grad)
        return out, grad_x, grad_weight

    def _backward(self) -> Call:
        """The two gradients of an output that is there."""
        out = self._output()
        inputs = self.operands.x, self.operands.weight

        def run() -> object:
            return torch.autograd.grad(out, inputs, self.operands.grad, retain_graph=True)

        return run

    def calls(self, kind: str) -> Calls:
        """Calls of every repeat; what builds a map finds sites without levels and maps.

        Args:
            kind: a name in `pcnn.bench.layers.setting.KINDS`, or ``backward``.
        """
        if kind == "backward":
            return same(self._backward())
        run = self.train if kind in BACKWARD else self.forward
        if kind not in WITH_MAP:
            return same(run)

        def prepared(_: int) -> Call:
            sites = bare(self.source)

            def build_and_run() -> object:
                return run(new_map(self.engine, sites, self.kernel))

            return build_and_run

        return prepared

    def results(self, kind: str) -> dict[str, Tensor]:
        """What the call of a kind returns, by name."""
        found = self.calls(kind)(0)()
        assert isinstance(found, tuple)
        return dict(zip(NAMES[1:] if kind == "backward" else NAMES, found, strict=False))


def new_map(engine: Engine, source: Geometry, kernel: Kernel) -> KernelMap:
    """The map that a layer of an engine would find on sites without levels and maps."""
    sites = bare(source)
    return map_between(sites, output_sites(sites, kernel), kernel, engine)


def floor_ms(operands: Operands, triplets: int, kind: str) -> float | None:
    """Lower bound of a convolution on its device [ms]: one product forwards, two backwards.

    Args:
        operands: read and written once each.
        triplets: number of triplets T.
        kind: of the call.
    """
    x, weight, grad = operands.x, operands.weight, operands.grad
    name = torch.cuda.get_device_name(x.device) if x.is_cuda else "cpu"
    once = triplets * weight.shape[1] * weight.shape[2]
    products = moved = 0
    if kind != "backward":  # x, weight and out
        products, moved = 1, x.nbytes + weight.nbytes + grad.nbytes
    if kind in BACKWARD:  # grad in, x and weight again, and their gradients out
        products, moved = products + 2, moved + grad.nbytes + 2 * (x.nbytes + weight.nbytes)
    floor = convolution_floor_ms(name, operands.dtype, products * once, moved)
    return None if floor is None else round(floor, 6)
