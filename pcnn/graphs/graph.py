"""A network made ready for inference in CUDA graphs from points on, by hand."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from pcnn.geometry.checks import check_features, check_points, require_tensors, voxel_sizes
from pcnn.graphs import INSIDE, NOTHING
from pcnn.graphs.automatic import Call
from pcnn.graphs.capture import Capture, NoGraph
from pcnn.graphs.fixed_input import FEWER, Edges, NoFixedSize, Planned
from pcnn.graphs.memory import Cloud, CloudMemory, room_for
from pcnn.graphs.runner import Runner
from pcnn.ops.plan import Planner
from pcnn.ops.voxelize import REDUCTIONS, voxelize
from pcnn.tensor import SparseTensor

#: What leaves calls to the network; all else is wrong with the input.
FAILURES = (NoGraph, torch.OutOfMemoryError)


class GraphedNetwork(Runner):
    """A network from points to its output; made by `graph`.

    Calls may come from several threads and streams; they run one after another. A change of the
    network's weights is seen at the next call, which captures again. `reason` says why the network
    runs eagerly for now; ``None``: it does not.
    """

    def __init__(
        self,
        model: nn.Module,
        voxel_size: float | Sequence[float],
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
        super().__init__(model, capture, edges, 1, most, FAILURES)
        self.model, self.voxel_size, self.dtype = model, voxel_sizes(voxel_size), dtype
        self.reduce = reduce

    def __call__(  # type: ignore[override]
        self,
        points: Tensor,
        features: Tensor,
        batch: Tensor | None = None,
        batch_size: int = 1,
    ) -> Any:
        """Run the network on a batch of clouds.

        Args:
            points: ``[P, 3]`` floating point [m], on any device, of which page-locked memory is
                copied without a wait.
            features: ``[P, C]`` of points.
            batch: ``[P]`` integers, cloud of every point; ``None``: one cloud.
            batch_size: number of clouds.

        Returns:
            The network's output on memory of its own.

        Raises:
            TypeError: inputs of another type.
            ValueError: as `pcnn.voxelize`, or a network in training mode.
        """
        require_tensors(points=points, features=features, batch=batch)
        check_points(points, batch)
        check_features(features, len(points))
        if self.model.training:
            raise ValueError("the network has been switched to training; call model.eval()")
        given, before, token = (points, features, batch, batch_size), self.reason, INSIDE.set(True)
        weight = next(self.model.parameters())
        try:
            with torch.inference_mode(), torch.cuda.device_of(weight):
                output = super().__call__(given, self.model, None, self._run)
                if output is not NOTHING:
                    return output
                if self.reason is not None and before is None:
                    name = type(self.model).__name__
                    message = f"{name} runs without CUDA graphs: {self.reason}"
                    warnings.warn(message, stacklevel=2)
                with self._lock:
                    if not self._holds():
                        self.adopt(self.model)
                    return self._run(self._tensor(given, self.planner))
        finally:
            INSIDE.reset(token)

    def _run(self, x: SparseTensor) -> Any:
        return self.net(self._cast(x))

    def _cast(self, x: SparseTensor) -> SparseTensor:
        return x if self.dtype is None else x.replace(x.features.to(self.dtype))

    def _item(self, given: Any, call: Call) -> tuple[Hashable, Any] | None:
        planner = call.planner
        if not planner.on_voxels.serves_rooms(planner.device):
            try:
                return super()._item(self._cast(self._tensor(given, planner)), call)
            except NoFixedSize as error:  # whatever the input
                raise NoGraph(str(error)) from error
        points, features, batch, clouds = given
        kinds = features.shape[1], points.dtype, features.dtype
        return (self.edges.above(len(points)), clouds, batch is not None, *kinds), given

    def _tensor(self, given: Cloud, planner: Planner) -> SparseTensor:
        points, features, batch, clouds = given
        on = (one if one is None else one.to(planner.device) for one in (points, features, batch))
        sizes = {"voxel_size": self.voxel_size, "batch_size": clouds}
        return voxelize(*on, reduce=self.reduce, planner=planner, **sizes)  # type: ignore[arg-type]

    def _part(self, given: Cloud) -> Cloud:
        points, features, batch, clouds = given
        few = -(-len(points) // FEWER)
        return points[:few], features[:few], None if batch is None else batch[:few], clouds

    def _memory(self, item: Any, x: SparseTensor, planner: Planner, before: Any) -> Any:
        if isinstance(item, Planned):
            return super()._memory(item, x, planner, before)
        room = room_for(planner, x, self.edges.above(len(item[0])), self.edges, before, False)
        plan, sizes = self.planner.on_voxels, (self.voxel_size, self.reduce)
        return CloudMemory(plan, self._cast(x), room, item, *sizes)


def graph(
    model: nn.Module,
    voxel_size: float | Sequence[float],
    dtype: torch.dtype | None = None,
    reduce: str = "mean",
    edges: Edges | None = None,
    most: int = 32,
) -> GraphedNetwork:
    """Make a network ready for inference in CUDA graphs, at the first input of every size.

    It runs from points: quantised, planned and computed in two launches, so the device is never
    waiting for the host. Where a plan waits for the device, as of networks with poolings, it comes
    before them, and is copied. On sparse tensors networks of this package (`pcnn.nn.PlannedModule`)
    become graphs by themselves once sizes repeat.

    Args:
        model: takes a `SparseTensor`; on a CUDA device, in evaluation mode.
        voxel_size: edge of a voxel [m], one number or one per axis.
        dtype: run the layers in this dtype, on a copy of the network whose norms stay float32;
            ``None``: the network as it is.
        reduce: features of the points of one voxel, as in `pcnn.voxelize`.
        edges: sizes that graphs are captured at.
        most: sizes that are kept; the one unused for longest goes first.

    Returns:
        A runner for calls with ``(points, features)``. Where the network cannot be captured, it
        warns once, keeps the `reason`, and runs eagerly until it tries again.

    Raises:
        ValueError: a network in training mode, an unknown reduction, or a voxel size that is not
            positive.
    """
    return GraphedNetwork(model, voxel_size, dtype, reduce, edges, most)
