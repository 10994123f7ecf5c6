"""One convolution with fixed random operands: the calls that are timed, and their check."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import Tensor

from pcnn.bench import oracle
from pcnn.bench.conformance import check_engine
from pcnn.bench.harness import Calls, same
from pcnn.bench.layer_shape import LayerShape
from pcnn.bench.place import Place, bare
from pcnn.bench.trace import Call
from pcnn.bench.verify import TF32
from pcnn.geometry import Geometry, Kernel, KernelMap, PointSet
from pcnn.kernels.tf32 import tf32_products
from pcnn.ops.convolution import convolution
from pcnn.ops.engine import Engine
from pcnn.ops.sites import output_sites
from pcnn.runtime.timing import convolution_floor_ms

#: Kinds of rows with backward; ``backward`` is the second half of ``train`` alone.
BACKWARD = ("backward", "train", "map+train")
#: Those that build the map in the measured time.
WITH_MAP = ("map+layer", "map+train")
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
    """Operands of a convolution, the same for all engines.

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
        cls, sizes: tuple[int, int, int], shape: LayerShape, dtype: str, device: torch.device
    ) -> Operands:
        """Normal features and gradients, and weights that keep the scale, made on the device.

        Args:
            sizes: rows of the input, rows of the output, kernel slots.
            shape: channels and their groups.
            dtype: as above.
            device: a host would take a second for a hundred million numbers.
        """
        n_in, n_out, volume = sizes
        terms = volume * shape.c_in // shape.groups
        random = torch.Generator(device).manual_seed(0)

        def operand(*size: int) -> Tensor:
            return torch.randn(size, generator=random, device=device)

        kind = torch_dtype(dtype)
        x = operand(n_in, shape.c_in).to(kind).requires_grad_()
        weight = operand(volume, shape.c_in // shape.groups, shape.c_out) * terms**-0.5
        weight = weight.to(kind).requires_grad_()
        return cls(x, weight, operand(n_out, shape.c_out).to(kind), dtype, shape.groups)


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
        self.dataflow = engine.choose(self.map, source.device)

    @torch.no_grad()
    def forward(self, built: KernelMap | None = None) -> tuple[Tensor]:
        """Output ``[N_out, C_out]`` over a map, without gradients; over the layer's own if none."""
        return (self._output(built),)

    def _output(self, built: KernelMap | None = None) -> Tensor:
        x, weight, groups = self.operands.x, self.operands.weight, self.operands.groups
        return convolution(x, weight, built or self.map, self.engine, groups=groups)

    def train(self, built: KernelMap | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Output and the gradients with respect to features and weights."""
        out = self._output(built)
        inputs = self.operands.x, self.operands.weight
        grad_x, grad_weight = torch.autograd.grad(out, inputs, self.operands.grad)
        return out, grad_x, grad_weight

    def _backward(self) -> Call:
        """The two gradients, of an output that has been computed."""
        out = self._output()
        inputs = self.operands.x, self.operands.weight

        def run() -> object:
            return torch.autograd.grad(out, inputs, self.operands.grad, retain_graph=True)

        return run

    def calls(self, kind: str) -> Calls:
        """Calls of every repeat; what builds a map finds sites without levels and maps.

        Args:
            kind: a name in `pcnn.bench.setting.KINDS`, or ``backward``.
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
        """The results of the call of a kind, by name."""
        found = self.calls(kind)(0)()
        assert isinstance(found, tuple)
        return dict(zip(NAMES[1:] if kind == "backward" else NAMES, found, strict=False))


def new_map(engine: Engine, source: Geometry, kernel: Kernel) -> KernelMap:
    """The map that a layer of an engine would find on sites without levels and maps."""
    sites = bare(source)
    return sites.kernel_map(output_sites(sites, kernel), kernel, engine)


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


def operands_at(place: Place, shape: LayerShape, dtype: str) -> Operands:
    """Random operands of a layer at a place."""
    sizes = place.grid.rows, place.target.rows, place.kernel.volume
    return Operands.random(sizes, shape, dtype, place.grid.device)


def true_layer(place: Place, operands: Operands, backward: bool) -> dict[str, Tensor]:
    """Results of a layer in float64, by name."""
    x, weight, groups = operands.x, operands.weight, operands.groups
    if backward:
        return oracle.products(place.pairs, x, weight, operands.grad, groups)
    dense = weight if groups == 1 else oracle.dense_weight(weight, groups)
    return {"out": oracle.output(place.pairs, x, dense, place.target.rows)}
