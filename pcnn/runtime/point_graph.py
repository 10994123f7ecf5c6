"""A network on native points in inference as CUDA graphs: the layers in one launch.

The planner waits for the numbers of points and triplets of a cloud, as it does eagerly. The cloud
with its maps is then copied to memory of fixed size (`pcnn.runtime.fixed_input`), and the graph of
that size is replayed. The counts of the plan are known on the host before the graph runs. So a
cloud that does not fit is not run, and outputs are as long as those of the network itself.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from pcnn.geometry import Geometry, PointSet
from pcnn.ops.recipe import Recipe
from pcnn.runtime.buckets import Edges
from pcnn.runtime.capture import Capture, CudaGraphs, Figures, failure_of
from pcnn.runtime.fixed_input import FixedInput
from pcnn.runtime.fixed_tensor import features_of, mapped, parts_of
from pcnn.runtime.graphed import Graphed
from pcnn.runtime.input_sizes import CrowdedMap, Sizes, levels_of
from pcnn.tensor import SparseTensor, require_sparse


@dataclass(frozen=True)
class PointBucket:
    """Memory and graph of one size of clouds."""

    input: FixedInput  # memory that clouds are copied to
    replay: Callable[[], Figures]  # runs the layers there; their outputs on memory of their own
    output: list[Any]  # what the network returned, on the memory of the graph
    bytes: int  # device memory that it took


class GraphedPoints(Graphed):
    """A network on native points; made by `graph`, which says what it is made of."""

    def __init__(
        self,
        model: nn.Module,
        dtype: torch.dtype | None = None,
        edges: Edges | None = None,
        most: int = 32,
        capture: Capture | None = None,
    ) -> None:
        super().__init__(model, dtype, edges, most)
        self._given = capture
        if capture is not None:
            self.reason = None
        self._buckets: OrderedDict[Hashable, PointBucket] = OrderedDict()
        self._done: torch.cuda.Event | None = None
        self._adopt()

    def __call__(self, x: SparseTensor) -> Any:
        """Run the network on a batch of clouds; the host waits while it is planned.

        Args:
            x: on native points (`pcnn.native_points`), on any device.

        Returns:
            The output of the network: every `SparseTensor` in it on the input's own points or their
            levels. A tensor of features without its points, if the network returns such, keeps the
            spare rows of its bucket.

        Raises:
            TypeError: an input that is no sparse tensor.
            ValueError: voxels, or a network in training mode.
        """
        require_sparse(x, self)
        if not isinstance(x.geometry, PointSet):
            raise ValueError(
                f"a graph of native points was called with {x.geometry}; give "
                "graph(..., voxel_size=...) the points themselves"
            )
        self._check_mode()
        x = x.to(self.device)
        if self.dtype is not None:
            x = x.replace(x.features.to(self.dtype))
        with self._lock, torch.inference_mode():
            while self.reason is None and x.geometry.rows:
                bucket = self._bucket(x)
                if bucket is None:
                    break
                output = self._replayed(bucket, x)
                # the device computes while the host looks at what it is given
                if self._is_current():
                    return output
                self._adopt()
            if not self._is_current():
                self._adopt()
            return self._net(x)

    def warmup(self, x: SparseTensor) -> None:
        """Capture the bucket of a cloud ahead of its first call.

        Args:
            x: a typical cloud, as in a call.
        """
        self(x)

    @property
    def buckets(self) -> list[dict[str, Any]]:
        """Rows of all levels, triplets of all maps and bytes of each bucket that was captured."""
        found = sorted(self._buckets.values(), key=lambda bucket: bucket.input.room.rows)
        return [
            {
                "points": bucket.input.room.rows[0],
                "clouds": bucket.input.tensor.geometry.batch_size,
                "rows": bucket.input.room.rows,
                "triplets": bucket.input.room.triplets,
                "bytes": bucket.bytes,
            }
            for bucket in found
        ]

    def _adopt(self) -> None:
        """Take the network as it is now: what was captured before belongs to other weights."""
        self._wait_for_calls()
        self._buckets.clear()
        super()._adopt()
        if self.reason is None:
            self._capture = CudaGraphs(self.device) if self._given is None else self._given

    def _bucket(self, x: SparseTensor) -> PointBucket | None:
        """The bucket of a cloud, captured where it is missing; none if that cannot be done."""
        self._planner(x.geometry, False)
        recipe = self._planner.recipe_on(x.geometry)
        try:
            sizes = Sizes.of(recipe, x, backward=False)
        except CrowdedMap:  # other clouds may have room
            return None
        except ValueError as error:
            self._run_eagerly_as(str(error))
            return None
        room = sizes.room(self.edges)
        key = room.rows[0], room.form
        bucket = self._buckets.get(key)
        if bucket is not None and sizes.fits(bucket.input.room):
            self._buckets.move_to_end(key)
            return bucket
        if bucket is not None:
            room = room.joined(bucket.input.room)
            self._wait_for_calls()
            del self._buckets[key], bucket
        found = self._captured(recipe, x, room)
        if found is not None:
            self._buckets[key] = found
            while len(self._buckets) > self.most:
                self._buckets.popitem(last=False)
        return found

    def _captured(self, recipe: Recipe, x: SparseTensor, room: Sizes) -> PointBucket | None:
        before = self._reserved()
        held = FixedInput(recipe, x, room, backward=False)
        held.take(x, {})
        output: list[Any] = []

        def layers() -> Figures:
            output[:] = [self._net(held.tensor)]
            return {str(number): part for number, part in enumerate(features_of(output))}

        try:
            layers()  # once outside: what is not compiled yet is compiled now
            replay = self._capture(layers)
        except RuntimeError as error:
            self._run_eagerly_as(failure_of(error))
            return None
        sites = [part.geometry for part in parts_of(output) if isinstance(part, SparseTensor)]
        if any(at not in held.levels for at in sites):
            self._run_eagerly_as("an output lies on sites that are no level of the input's")
            return None
        return PointBucket(held, replay, output, self._reserved() - before)

    def _wait_for_calls(self) -> None:
        """Wait until no graph runs: one on another stream may read memory that is freed next."""
        if self._done is not None:
            self._done.synchronize()

    def _reserved(self) -> int:
        on_device = self.device.type == "cuda"
        return torch.cuda.memory_reserved(self.device) if on_device else 0

    def _replayed(self, bucket: PointBucket, x: SparseTensor) -> Any:
        """The output on the points of a cloud that fits."""
        stream = torch.cuda.current_stream(self.device) if self.device.type == "cuda" else None
        if stream is not None and self._done is not None:
            stream.wait_event(self._done)  # of the call before, which may be of another stream
        bucket.input.take(x, {})
        found = bucket.replay().values()
        if stream is not None:
            self._done = self._done or torch.cuda.Event()
            self._done.record(stream)
        exact = levels_of(bucket.input.recipe, x)
        places = {id(own): at for own, at in zip(bucket.input.levels, exact, strict=True)}

        (output,) = bucket.output
        return _OnPoints(found, places)(output)


class _OnPoints:
    """Puts an output together of new tensors, in the order of `parts_of`."""

    # no closure that calls itself: maps of every cloud would live until cycles are collected

    def __init__(self, features: Iterable[Tensor], places: Mapping[int, Geometry]) -> None:
        self._features, self._places = iter(features), places

    def __call__(self, part: Any) -> Any:
        if isinstance(part, SparseTensor):
            at = self._places[id(part.geometry)]
            return SparseTensor(next(self._features)[: at.rows], at)
        return next(self._features) if isinstance(part, Tensor) else mapped(part, self)
