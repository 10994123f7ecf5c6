"""A network made ready for inference in CUDA graphs by hand."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from pcnn.geometry.checks import check_features, check_points, require_tensors, voxel_sizes
from pcnn.graphs import INSIDE, NOTHING
from pcnn.graphs.capture import Capture, NoGraph
from pcnn.graphs.memory import Clouds, Tensors
from pcnn.graphs.runner import Runner, Source
from pcnn.graphs.sizes import Edges
from pcnn.maps.voxel_points import REDUCTIONS
from pcnn.tensor import SparseTensor, require_sparse

#: What leaves calls to the network; all else is wrong with the input.
FAILURES = (NoGraph, torch.OutOfMemoryError)


class GraphedNetwork:
    """A network from points, or from a sparse tensor, to its output; made by `graph`.

    Calls may come from several threads and streams; they run one after another. A change of the
    network's weights is seen at the next call, which captures again.
    """

    def __init__(
        self,
        model: nn.Module,
        voxel_size: float | Sequence[float] | None = None,
        dtype: torch.dtype | None = None,
        reduce: str = "mean",
        edges: Edges | None = None,
        most: int = 32,
        capture: Capture | None = None,
    ) -> None:
        if model.training:
            raise ValueError("graph() runs inference, but the network trains: call model.eval()")
        if reduce not in REDUCTIONS:
            raise ValueError(f"reduce must be one of {', '.join(REDUCTIONS)}, got {reduce!r}")
        self.model, self.dtype, edges = model, dtype, edges or Edges()
        source: Source = Tensors(edges)
        if voxel_size is not None:
            source = Clouds(edges, voxel_sizes(voxel_size), reduce)
        self.runner = Runner(model, source, dtype, capture, 1, most, FAILURES)
        self._is_from_points = voxel_size is not None
        self._device = next(model.parameters()).device

    @property
    def reason(self) -> str | None:
        """Why the network runs eagerly for now; ``None``: it does not."""
        return self.runner.reason

    def __call__(
        self,
        given: Tensor | SparseTensor,
        features: Tensor | None = None,
        batch: Tensor | None = None,
        batch_size: int = 1,
    ) -> Any:
        """Run the network on a batch of clouds.

        Args:
            given: with a voxel size ``[P, 3]`` floating point [m], on any device, of which
                page-locked memory is copied without a wait; otherwise a sparse tensor.
            features: ``[P, C]`` of points.
            batch: ``[P]`` integers, cloud of every point; ``None``: one cloud.
            batch_size: number of clouds.

        Returns:
            The network's output on memory of its own.

        Raises:
            TypeError: inputs of another type.
            ValueError: as `pcnn.voxelize`, or a network in training mode.
        """
        if self._is_from_points:
            require_tensors(points=given, features=features, batch=batch)
            assert isinstance(given, Tensor)
            assert isinstance(features, Tensor)
            check_points(given, batch)
            check_features(features, len(given))
            inputs: Any = given, features, batch, batch_size
        else:
            require_sparse(given, self)
            inputs = given.to(self._device)
            if self.dtype is not None:
                inputs = inputs.replace(inputs.features.to(self.dtype))
        if self.model.training:
            raise ValueError("the network has been switched to training; call model.eval()")
        token = INSIDE.set(True)
        try:
            with torch.inference_mode():
                return self._answer(inputs)
        finally:
            INSIDE.reset(token)

    def _answer(self, inputs: Any) -> Any:
        runner, before = self.runner, self.runner.reason
        output = runner(inputs, self.model, None, lambda x: runner.net(self._cast(x)))
        if output is not NOTHING:
            return output
        if runner.reason is not None and before is None:
            name = type(self.model).__name__
            message = f"{name} runs without CUDA graphs: {runner.reason}"
            warnings.warn(message, stacklevel=4)
        net = runner.current(self.model)
        return net(self._cast(runner.source.tensor(inputs, runner.planner)))

    def _cast(self, x: SparseTensor) -> SparseTensor:
        return x if self.dtype is None else x.replace(x.features.to(self.dtype))


def graph(
    model: nn.Module,
    voxel_size: float | Sequence[float] | None = None,
    dtype: torch.dtype | None = None,
    reduce: str = "mean",
    edges: Edges | None = None,
    most: int = 32,
) -> GraphedNetwork:
    """Make a network ready for inference in CUDA graphs, at the first input of every size.

    With a voxel size it runs from points: quantised, planned and computed in two launches, so the
    device is never waiting for the host. Without one it takes a sparse tensor, as the network
    does; networks of this package (`pcnn.nn.PlannedModule`) do that by themselves once sizes
    repeat.

    Args:
        model: takes a `SparseTensor`; on a CUDA device, in evaluation mode.
        voxel_size: edge of a voxel [m], one number or one per axis; ``None``: sparse tensors.
        dtype: run the layers in this dtype, on a copy of the network whose norms stay float32;
            ``None``: the network as it is.
        reduce: features of the points of one voxel, as in `pcnn.voxelize`.
        edges: sizes that graphs are captured at.
        most: sizes that are kept; the one unused for longest goes first.

    Returns:
        A runner for calls with ``(points, features)``, or with a `SparseTensor`. Where the network
        cannot be captured, it warns once, keeps the `reason`, and runs eagerly until it tries
        again.

    Raises:
        ValueError: a network in training mode, an unknown reduction, or a voxel size that is not
            positive.
    """
    return GraphedNetwork(model, voxel_size, dtype, reduce, edges, most)
