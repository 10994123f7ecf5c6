"""Suite ``layers``: the time of single convolutions, forward and with backward, maps excluded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from pcnn.bench import oracle
from pcnn.bench.calls import same
from pcnn.bench.harness import measure
from pcnn.bench.rows import Row
from pcnn.bench.scenes import Scene
from pcnn.bench.verify import Configuration, check_values
from pcnn.geometry import Kernel, KernelMap
from pcnn.ops.convolution import convolution
from pcnn.ops.device_rates import convolution_floor_ms
from pcnn.ops.engine import Engine

#: (size, stride) of the measured kernels: submanifold and down-sampling.
KERNELS = ((3, 1), (2, 2))
NAMES = ("out", "grad_x", "grad_weight")


def bench_layers(
    scene: Scene,
    engine: Engine,
    device: torch.device,
    *,
    dtype: torch.dtype = torch.float32,
    channels: Sequence[tuple[int, int]] = ((16, 16), (32, 32), (64, 64)),
    kernels: Sequence[tuple[int, int]] = KERNELS,
    repeats: int = 20,
) -> Iterator[Row]:
    """Check, then time, every layer: forward alone (``layer``), then with backward (``train``).

    Raises:
        CheckFailed: a value or gradient is further from float64 than the dtype explains.
    """
    grid = scene.grid.to(device)
    for size, stride in kernels:
        kernel = Kernel.of(size, stride)
        target = grid.strided(kernel)
        built = engine.builder.build(grid, target, kernel)
        pairs = oracle.triplets(grid, target, kernel)
        for c_in, c_out in channels:
            layer = Layer(engine, built, c_in, c_out, dtype, device)
            truth = oracle.products(pairs, layer.x, layer.weight, layer.grad)
            for backward in (False, True):
                configuration = Configuration(
                    engine.name,
                    scene.name,
                    str(device),
                    kernel,
                    str(dtype).removeprefix("torch."),
                    c_in,
                    c_out,
                    backward,
                )
                names = NAMES if backward else NAMES[:1]
                results = layer.train() if backward else (layer.forward(),)
                proof = check_values(
                    configuration,
                    dict(zip(names, results, strict=True)),
                    {name: getattr(truth, name) for name in names},
                )
                run = layer.train if backward else layer.forward
                measured = measure(same(run), device, repeats=repeats)
                proof.admit(configuration)
                yield Row(
                    "train" if backward else "layer",
                    scene.name,
                    engine.name,
                    n=grid.rows,
                    triplets=built.triplets,
                    dtype=configuration.dtype,
                    k=size,
                    stride=stride,
                    c_in=c_in,
                    c_out=c_out,
                    floor_ms=layer.floor_ms(backward),
                    checked=True,
                    **measured.columns(),
                )


class Layer:
    """One convolution with fixed random operands.

    Args:
        engine: whose dataflow computes.
        built: the kernel map.
        c_in: input channels.
        c_out: output channels.
        dtype: of features and weights.
        device: where it runs.
    """

    def __init__(
        self,
        engine: Engine,
        built: KernelMap,
        c_in: int,
        c_out: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        random = torch.Generator().manual_seed(0)

        def operand(*shape: int, scale: float = 1.0) -> Tensor:
            return (scale * torch.randn(shape, generator=random)).to(device, dtype)

        self.engine, self.map = engine, built
        self.x = operand(built.n_in, c_in).requires_grad_()
        scale = (built.volume * c_in) ** -0.5
        self.weight = operand(built.volume, c_in, c_out, scale=scale).requires_grad_()
        self.grad = operand(built.n_out, c_out)

    @torch.no_grad()
    def forward(self) -> Tensor:
        """Output ``[N_out, C_out]``, without gradients."""
        return convolution(self.x, self.weight, self.map, self.engine.dataflow)

    def floor_ms(self, backward: bool) -> float | None:
        """Lower bound on this device [ms]; with backward of three products instead of one."""
        name = torch.cuda.get_device_name(self.x.device) if self.x.is_cuda else "cpu"
        dtype = str(self.x.dtype).removeprefix("torch.")
        once = self.map.triplets * self.weight.shape[1] * self.weight.shape[2]
        # x, weight, out; then grad in, x and weight again, and their gradients out
        moved = self.x.nbytes + self.weight.nbytes + self.grad.nbytes
        if backward:
            moved = moved + self.grad.nbytes + 2 * (self.x.nbytes + self.weight.nbytes)
        floor = convolution_floor_ms(name, dtype, (3 if backward else 1) * once, moved)
        return None if floor is None else round(floor, 6)

    def train(self) -> tuple[Tensor, Tensor, Tensor]:
        """Output and the gradients with respect to features and weights."""
        out = convolution(self.x, self.weight, self.map, self.engine.dataflow)
        grad_x, grad_weight = torch.autograd.grad(out, (self.x, self.weight), self.grad)
        return out, grad_x, grad_weight
