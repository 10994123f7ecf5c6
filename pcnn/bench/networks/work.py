"""Inputs of a network, and the calls that are timed."""

from __future__ import annotations

import copy
from collections import deque
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from pcnn.bench.harness import Calls, same
from pcnn.bench.networks.models import CHANNELS, features_of
from pcnn.bench.trace import Call
from pcnn.geometry import VoxelGrid
from pcnn.kernels.recorded import compile_all
from pcnn.nn.planned import PlannedModule
from pcnn.runtime.launches import launches_of
from pcnn.tensor import SparseTensor

#: Modes with backward (`pcnn.bench.setting.MODES`).
TRAINING = ("train", "step", "backward")


class Input(Protocol):
    """The input of a network, independent of the reader it comes from."""

    @property
    def features(self) -> Tensor:
        """``[P, C]``."""

    @property
    def are_points(self) -> bool:
        """True if a network sees native points, not voxels."""

    def to(self, dtype: torch.dtype) -> Input:
        """The same with features of another dtype."""

    def on(self, network: PlannedModule, backward: bool) -> SparseTensor:
        """Input of a network, planned for it."""


@dataclass(frozen=True, eq=False)
class Cells:
    """Shuffled cells and their features, as a reader delivers them.

    Args:
        cells: ``[P, 4]`` int32 (batch, x, y, z), distinct, in no order.
        features: ``[P, 4]`` float32.
        batches: number of clouds.
        downsampling: sites of strided layers, ``floor`` or ``reached``.
    """

    cells: Tensor
    features: Tensor
    batches: int
    downsampling: str = "floor"

    @classmethod
    def of(cls, grid: VoxelGrid, device: torch.device, batches: int = 1) -> Cells:
        """Cells of a scene, as often as there are clouds in the batch.

        Raises:
            ValueError: several clouds of a scene that is a batch itself.
        """
        if batches > 1 and grid.batch_size > 1:
            raise ValueError("this scene holds several clouds; it cannot be repeated as a batch")
        coords = grid.coords.to(device)
        copies = [coords + coords.new_tensor([b, 0, 0, 0]) for b in range(batches)]
        cells = torch.cat(copies)
        order = torch.randperm(cells.shape[0], generator=torch.Generator().manual_seed(0))
        random = torch.Generator(device).manual_seed(1)
        features = torch.randn(cells.shape[0], CHANNELS, generator=random, device=device)
        clouds = grid.batch_size * batches
        shuffled = cells[order.to(device)].contiguous()
        return cls(shuffled, features, clouds, grid.downsampling)

    @property
    def are_points(self) -> bool:
        """See `Input.are_points`."""
        return False

    def to(self, dtype: torch.dtype) -> Cells:
        """The same cells with features of another dtype."""
        return replace(self, features=self.features.to(dtype))

    def on(
        self, network: PlannedModule, backward: bool, dtype: torch.dtype | None = None
    ) -> SparseTensor:
        """Input of a network: cells sorted and planned, features in the order of the sites."""
        grid = network.planner.voxelize(
            self.cells, self.batches, downsampling=self.downsampling, backward=backward
        )
        features = self.features if dtype is None else self.features.to(dtype)
        assert grid.inverse is not None
        rows = torch.empty_like(features)
        rows.index_copy_(0, grid.inverse, features)
        return SparseTensor(rows, grid)


class Work:
    """A network on its input, in one dtype.

    Args:
        network: in ``dtype`` for inference; in training in float32 under autocast, unless
            ``dtype`` is the network's own.
        cells: what it is given.
        dtype: that products are computed in.
    """

    def __init__(self, network: PlannedModule, cells: Input, dtype: torch.dtype) -> None:
        self.network, self.cells, self.dtype = network, cells, dtype
        own = next(network.parameters()).dtype
        self.casts = own != dtype
        self.input = cells.to(own)
        self._pulls: list[Tensor] = []

    def elsewhere(self, cells: Input) -> Work:
        """The same network on another input."""
        return Work(self.network, cells, self.dtype)

    def _autocast(self) -> AbstractContextManager[object]:
        device = self.cells.features.device.type
        return torch.autocast(device, self.dtype) if self.casts else nullcontext()

    def compile_ahead(self, mode: str) -> None:
        """Compile the kernels of a mode's calls side by side, on a GPU; one by one takes minutes.

        Errors are raised by the call, which says where.
        """
        device = self.cells.features.device
        if device.type != "cuda":
            return
        training = mode in TRAINING
        network = copy.deepcopy(self.network).train(training)
        with suppress(Exception), self._autocast():
            x = self.input.on(network, backward=training)
            deque(compile_all(launches_of(network, [x], training), device), maxlen=0)

    @torch.no_grad()
    def infer(self, x: SparseTensor | None = None) -> list[Tensor]:
        """Outputs, from cells unless there is a planned input."""
        if x is None:
            x = self.input.on(self.network, backward=False)
        with self._autocast():
            return self._features(self.network(x))

    def train(self, x: SparseTensor | None = None) -> list[Tensor]:
        """Outputs and the gradients of all parameters, from cells unless the input is planned."""
        if x is None:
            x = self.input.on(self.network, backward=True)
        outputs = self.outputs(x)
        return [*outputs, *self._gradients(outputs)]

    def outputs(self, x: SparseTensor) -> list[Tensor]:
        """Outputs of a planned input, with gradients where they are enabled."""
        with self._autocast():
            return self._features(self.network(x))

    def _features(self, outputs: object) -> list[Tensor]:
        """Features of what the network returns."""
        return features_of(outputs)

    def _gradients(self, outputs: list[Tensor]) -> tuple[Tensor, ...]:
        """Gradients of all parameters."""
        grads = [self._gradient(number, out) for number, out in enumerate(outputs)]
        weights = list(self.network.parameters())
        return torch.autograd.grad(outputs, weights, grads)

    def _gradient(self, number: int, output: Tensor) -> Tensor:
        """Gradient of ``(c * y^2).sum() / 2`` with ``c`` of every channel fixed."""
        # rows pull the same way; under random gradients little but rounding would be left of the
        # gradient of a weight
        if number == len(self._pulls):
            random = torch.Generator(output.device).manual_seed(number)
            pull = torch.rand(output.shape[1], generator=random, device=output.device)
            self._pulls.append((pull - 0.3).to(output.dtype))
        return output.detach() * self._pulls[number]

    def calls(self, mode: str) -> Calls:
        """Calls of every repeat.

        Args:
            mode: a name in `pcnn.bench.setting.MODES`, or ``backward``: that of a step whose
                forward is done.
        """
        training = mode in TRAINING
        self.network.train(training)
        run = self.train if training else self.infer
        if mode in ("infer", "train"):
            return same(run)
        with torch.set_grad_enabled(training):
            x = self.input.on(self.network, backward=training)
        if mode != "backward":
            return same(lambda: run(x))

        def prepared(_: int) -> Call:
            outputs = self.outputs(x)
            return lambda: self._gradients(outputs)

        return prepared

    def results(self, mode: str) -> dict[str, Tensor]:
        """The results of the call of a mode, by name, without their graph."""
        found = [tensor.detach() for tensor in self.calls(mode)(0)()]  # type: ignore[attr-defined]
        weights = [name for name, _ in self.network.named_parameters()] if mode in TRAINING else []
        count = len(found) - len(weights)
        return dict(zip([*(f"out{n}" for n in range(count)), *weights], found, strict=True))
