"""A whole network in inference as CUDA graphs: from points to its output in two launches.

A graph holds tensors of one size, so clouds are sorted into buckets (`pcnn.runtime.buckets`): the
points of a bucket are a capacity, and so are the sites of every level, in which the first ``count``
rows are sites (`pcnn.ops.room.Room`). The first graph sorts, packs, reduces features and builds all
levels and kernel maps, the second runs the layers. While it does, the host reads how many sites
there were: a cloud with more than its bucket holds has given no result, and runs again in a larger
bucket.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, overload

import torch
from torch import Tensor, nn

from pcnn.geometry import VoxelGrid
from pcnn.geometry.checks import check_finite, check_points, require_tensors, voxel_sizes
from pcnn.maps.cell_bits import fitting_words
from pcnn.maps.place import Intake
from pcnn.maps.voxel_points import REDUCTIONS, cells_of_points, reduce_by_row
from pcnn.ops.room import PlanRoom, Room, WaitsForDevice
from pcnn.ops.voxelize import voxelize
from pcnn.runtime.buckets import HEADROOM, Edges
from pcnn.runtime.capture import capturing, failure_of
from pcnn.runtime.fixed_tensor import Copies, fixed
from pcnn.runtime.graphed import Graphed
from pcnn.runtime.point_graph import GraphedPoints
from pcnn.tensor import SparseTensor

#: Points, features and batch index.
Cloud = tuple[Tensor, Tensor, Tensor | None]


class Key(NamedTuple):
    """The part of a cloud that decides in which bucket it runs."""

    points: int  # the edge
    clouds: int
    has_batch: bool
    channels: int
    dtypes: tuple[torch.dtype, torch.dtype]


@dataclass(frozen=True)
class Bucket:
    """Memory and graphs of one size of clouds."""

    room: PlanRoom  # sizes of the plan
    bytes: int  # device memory that capturing it took
    intake: Intake  # memory that points, features and batch index of a cloud are copied to
    seen: Tensor  # what the plan saw (DevicePlan.seen), on the memory of the graph
    report: Tensor  # page-locked memory that it is copied to
    graphs: tuple[torch.cuda.CUDAGraph, torch.cuda.CUDAGraph]  # that of the geometry
    output: Any  # of the network, on the memory of the graph
    grid: VoxelGrid  # the geometry, likewise


class GraphedNetwork(Graphed):
    """A network from points to its output; made by `graph`, which says what it is made of."""

    def __init__(
        self,
        model: nn.Module,
        voxel_size: float | Sequence[float],
        dtype: torch.dtype | None = None,
        reduce: str = "mean",
        edges: Edges | None = None,
        most: int = 32,
    ) -> None:
        if reduce not in REDUCTIONS:
            raise ValueError(f"reduce must be one of {', '.join(REDUCTIONS)}, got {reduce!r}")
        super().__init__(model, dtype, edges, most)
        self.reduce, self.voxel_size = reduce, voxel_sizes(voxel_size)
        self._buckets: OrderedDict[Key, Bucket] = OrderedDict()
        self._adopt()

    def __call__(
        self, points: Tensor, features: Tensor, batch: Tensor | None = None, batch_size: int = 1
    ) -> Any:
        """Run the network on a batch of clouds.

        Args:
            points: ``[P, 3]`` floating point [m], on any device; page-locked memory is copied
                without a wait.
            features: ``[P, C]``.
            batch: ``[P]`` integers, cloud of every point; ``None``: one cloud.
            batch_size: number of clouds.

        Returns:
            The network's output on memory of its own, with a `FixedTensor` for every
            `SparseTensor` in it.

        Raises:
            TypeError: inputs that are no tensors.
            ValueError: as `pcnn.voxelize`, or a network in training mode.
        """
        require_tensors(points=points, features=features, batch=batch)
        check_points(points, batch)
        if features.ndim != 2 or features.shape[0] != points.shape[0]:
            raise ValueError(
                f"features must be [{points.shape[0]}, C] to match the points, got "
                f"{tuple(features.shape)}"
            )
        self._check_mode()
        cloud = points, features, batch
        with self._lock, torch.inference_mode():
            while self.reason is None:
                bucket = self._bucket(cloud, batch_size)
                if bucket is None:
                    break
                output = self._replay(bucket, cloud, batch_size)
                if output is not None:
                    return output
            return self._eagerly(cloud, batch_size)

    def warmup(
        self,
        points: Tensor,
        features: Tensor,
        batch: Tensor | None = None,
        batch_size: int = 1,
        sizes: Sequence[int] = (),
    ) -> None:
        """Capture the bucket of a cloud ahead of its first call, and those of other sizes.

        Args:
            points: of a typical cloud, as in a call, with the following.
            features: ...
            batch: ...
            batch_size: ...
            sizes: numbers of points to be ready for; their sites are taken to be as many a point.
        """
        self(points, features, batch, batch_size)
        cloud = points, features, batch
        key = self._key(cloud, batch_size)
        for size in sizes if self.reason is None else ():
            with self._lock, torch.inference_mode():
                own, edge = self._buckets[key].room, self.edges.above(size)
                share = size / max(1, len(points))
                lists = own.sizes.rows, own.sizes.pairs
                rows, pairs = (tuple(self.edges.above(int(n * share)) for n in s) for s in lists)
                if key._replace(points=edge) not in self._buckets:
                    scaled = replace(own.sizes, points=edge, rows=rows, pairs=pairs)
                    room = replace(own, sizes=scaled)
                    few = points[:size], features[:size], None if batch is None else batch[:size]
                    self._capture(room, few, key._replace(points=edge))

    @property
    def rooms(self) -> dict[Key, PlanRoom]:
        """Sizes of the buckets."""
        return {key: bucket.room for key, bucket in self._buckets.items()}

    @property
    def buckets(self) -> list[dict[str, Any]]:
        """Points, clouds, rows of every level and bytes of each bucket that was captured."""
        found = sorted(self._buckets.items(), key=lambda item: item[0][:2])
        return [
            {
                "points": key.points,
                "clouds": key.clouds,
                "rows": bucket.room.sizes.rows,
                "bytes": bucket.bytes,
            }
            for key, bucket in found
        ]

    def _adopt(self) -> None:
        """Take the network as it is now: what was captured before belongs to other weights."""
        self._buckets.clear()
        self._pool: Any = None
        super()._adopt()
        self._passes = (1, 1)
        if self.reason is None:
            self._pool = torch.cuda.graph_pool_handle()
            self._stream = torch.cuda.Stream(self.device)
            events = (torch.cuda.Event() for _ in range(4))
            self._planned, self._reported, self._delivered, self._done = events
            self._ran: int | None = None  # the stream of the call before

    def _key(self, cloud: Cloud, batch_size: int) -> Key:
        points, features, batch = cloud
        kinds = features.shape[1], (points.dtype, features.dtype)
        return Key(self.edges.above(len(points)), batch_size, batch is not None, *kinds)

    def _bucket(self, cloud: Cloud, batch_size: int) -> Bucket | None:
        """The bucket of a cloud, captured where it is missing; none if that cannot be done."""
        key = self._key(cloud, batch_size)
        if key in self._buckets:
            self._buckets.move_to_end(key)
            return self._buckets[key]
        return self._enlarged(cloud, batch_size, None)

    def _enlarged(self, cloud: Cloud, batch_size: int, old: PlanRoom | None) -> Bucket | None:
        """Capture a bucket that holds a cloud, and all that the old one held."""
        points, _, batch = cloud
        try:
            on = points.to(self.device)
            at = None if batch is None else batch.to(self.device)
            with torch.inference_mode(False):
                cells = cells_of_points(on, at, self.voxel_size)
                grid = self._planner.voxelize(cells, batch_size)
            needed = self._planner.on_voxels.room_of(grid)
            share = HEADROOM
            sizes = needed.sizes.rows, needed.sizes.pairs
            rows, pairs = ([self.edges.above(int(share * n)) for n in own] for own in sizes)
            cut, whole = needed.cut, needed.sizes.whole
            words = needed.sizes.words
            if words:  # of extents along three axes
                words = fitting_words(words, needed.sizes.rows[0], HEADROOM**3)
            if old is not None:
                rows = list(map(max, rows, old.sizes.rows))
                pairs = list(map(max, pairs, old.sizes.pairs))
                words = max(words, old.sizes.words) if words else 0
                whole &= old.sizes.whole
                cut = old.cut
            first, second = zip(self._passes, needed.sizes.passes, strict=True)
            self._passes = max(first), max(second)
            most = self.edges.above(len(points))
            bound = Room(most, tuple(rows), self._passes, words, whole, tuple(pairs))
            return self._capture(PlanRoom(bound, cut), cloud, self._key(cloud, batch_size))
        except WaitsForDevice as error:
            self._run_eagerly_as(str(error))
        return None

    def _capture(self, room: PlanRoom, cloud: Cloud, key: Key) -> Bucket | None:
        device, plan = self.device, self._planner.on_voxels
        shapes = zip(((3,), (key.channels,)), key.dtypes, strict=True)
        at, values = (
            torch.zeros(key.points, *shape, dtype=dtype, device=device) for shape, dtype in shapes
        )
        clouds = None
        if key.has_batch:
            clouds = torch.zeros(key.points, dtype=torch.int32, device=device)
        count = torch.zeros(1, dtype=torch.int32, device=device)
        intake = Intake(count, [at, values] if clouds is None else [at, values, clouds])

        def geometry() -> tuple[VoxelGrid, Tensor, Tensor]:
            inputs = torch.empty(0)

            def reduce_points(order: Tensor, inverse: Tensor, rows: int) -> None:
                nonlocal inputs
                inputs = reduce_by_row(values, order, inverse, rows, self.reduce, count)
                inputs = inputs.to(self.dtype or inputs.dtype)

            cells = cells_of_points(at, clouds, self.voxel_size)
            planned = plan.in_room(cells, count, key.clouds, "floor", room, reduce_points)
            return *planned, inputs

        def layers(grid: VoxelGrid, inputs: Tensor) -> Any:
            return fixed(self._net(SparseTensor(inputs, grid)))

        self._stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(self._stream):
            intake.take(_given(cloud))
            grid, seen, inputs = geometry()  # once outside, where what is missing is compiled
            layers(grid, inputs)
            report = torch.empty(seen.shape, dtype=seen.dtype, pin_memory=True)
        graphs = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        kept = self._pool, self._stream
        torch.cuda.empty_cache()  # as captures do; what it gives back is not theirs
        before = torch.cuda.memory_reserved(device)
        try:
            with capturing(graphs[0], *kept):
                grid, seen, inputs = geometry()
            with capturing(graphs[1], *kept):
                output = layers(grid, inputs)
        except RuntimeError as error:
            self._run_eagerly_as(failure_of(error))
            return None
        torch.cuda.current_stream(device).wait_stream(self._stream)
        took = torch.cuda.memory_reserved(device) - before
        bucket = Bucket(room, took, intake, seen, report, graphs, output, grid)
        self._buckets[key] = bucket
        while len(self._buckets) > self.most:
            self._buckets.popitem(last=False)
        return bucket

    def _replay(self, bucket: Bucket, cloud: Cloud, batch_size: int) -> Any:
        """The output; ``None`` if the cloud did not fit, and a larger bucket was captured."""
        points, _, _ = cloud
        stream = torch.cuda.current_stream(self.device)
        if stream.cuda_stream != self._ran:  # a stream itself is never unequal to None
            stream.wait_event(self._done)
            self._ran = stream.cuda_stream
        bucket.intake.take(_given(cloud))
        geometry, layers = bucket.graphs
        geometry.replay()
        self._planned.record(stream)
        layers.replay()
        copies = Copies(bucket.output, len(points))  # on memory of the caller's stream
        with torch.cuda.stream(self._stream):  # beside the layers
            self._stream.wait_event(self._planned)
            bucket.report.copy_(bucket.seen, non_blocking=True)
            self._reported.record(self._stream)
            copies.fill_sites()
            self._delivered.record(self._stream)
        copies.fill_features()
        stream.wait_event(self._delivered)
        self._done.record(stream)
        # the device computes while the host looks at what it is given
        if not self._is_current():
            self._adopt()
            return None
        self._reported.synchronize()
        try:
            numbers = bucket.report.tolist()
            seen = self._planner.on_voxels.seen(numbers, batch_size, "floor")
        except ValueError:
            check_finite(points)  # such a point falls nowhere: name it rather than its cell
            raise
        if bucket.room.sizes.holds(seen):
            return copies.output
        self._enlarged(cloud, batch_size, bucket.room)
        return None

    def _eagerly(self, cloud: Cloud, batch_size: int) -> Any:
        points, features, batch = (None if t is None else t.to(self.device) for t in cloud)
        assert points is not None
        assert features is not None
        x = voxelize(
            points,
            features,
            batch,
            voxel_size=self.voxel_size,
            reduce=self.reduce,
            batch_size=batch_size,
        )
        return fixed(self._net(x if self.dtype is None else x.replace(x.features.to(self.dtype))))


@overload
def graph(
    model: nn.Module,
    voxel_size: float | Sequence[float],
    dtype: torch.dtype | None = None,
    reduce: str = "mean",
    edges: Edges | None = None,
    most: int = 32,
) -> GraphedNetwork: ...


@overload
def graph(
    model: nn.Module,
    voxel_size: None = None,
    dtype: torch.dtype | None = None,
    reduce: str = "mean",
    edges: Edges | None = None,
    most: int = 32,
) -> GraphedPoints: ...


def graph(
    model: nn.Module,
    voxel_size: float | Sequence[float] | None = None,
    dtype: torch.dtype | None = None,
    reduce: str = "mean",
    edges: Edges | None = None,
    most: int = 32,
) -> GraphedNetwork | GraphedPoints:
    """Make a network ready for inference in CUDA graphs.

    With a voxel size it runs from points: quantised, planned and computed. The device gets two
    launches a cloud, so it is never waiting for the host. Without one it takes native points: the
    host plans each cloud and waits for its numbers of points and triplets, and the layers are one
    launch. Graphs are captured at the first cloud of every size (`Edges`), or ahead by
    `GraphedNetwork.warmup`.

    Args:
        model: takes a `SparseTensor`; on a CUDA device, in evaluation mode.
        voxel_size: edge of a voxel [m], one number or one per axis; ``None``: native points.
        dtype: run the layers in this dtype, on a copy of the network whose norms stay float32;
            ``None``: the network as it is.
        reduce: features of the points of one voxel, as in `pcnn.voxelize`; not on native points.
        edges: sizes of buckets.
        most: buckets that are kept; the one unused for longest goes first.

    Returns:
        A runner for calls with ``(points, features)``, on native points with a `SparseTensor`.
        Where the network cannot be captured, it warns once, keeps the `reason`, and runs eagerly.

    Raises:
        ValueError: a network in training mode, an unknown reduction, or a voxel size that is not
            positive.
    """
    if voxel_size is None:
        return GraphedPoints(model, dtype, edges, most)
    return GraphedNetwork(model, voxel_size, dtype, reduce, edges, most)


def _given(cloud: Cloud) -> Sequence[Tensor]:
    points, features, batch = cloud
    return (points, features) if batch is None else (points, features, batch)
