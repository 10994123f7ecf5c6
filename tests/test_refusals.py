"""Calls that cannot be served: the error is of the right kind, and names what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import pcnn
from pcnn.dataflows import Reference
from pcnn.dataflows.gather_scatter import GatherScatter
from pcnn.dataflows.triplets import Triplets
from pcnn.dataflows.weight_stationary import WEIGHT_STATIONARY
from pcnn.geometry import (
    Kernel,
    KernelMap,
    PointSet,
    VoxelGrid,
    grid_of_cells,
    point_set_of,
    quantize,
)
from pcnn.geometry.packing import HALF, pack
from pcnn.maps import BruteForce, SortedSearch
from pcnn.maps.point_cells import checked_reach
from pcnn.maps.radius import RadiusSearch
from pcnn.nn import (
    Conv3d,
    ConvTranspose3d,
    FeatureWise,
    GlobalAvgPool,
    MaxPool3d,
    SparseConv3d,
    cat,
    normalize,
)
from pcnn.ops import Engine, convolution, devoxelize, reduce_points, resolve
from pcnn.ops.engine import ENGINES
from tests.clouds import surface_grid
from tests.maps.native_points import scan

K3, HALVED = Kernel.of(3), Kernel.of(2, 2)
CELLS, ONES, FEW = torch.zeros(2, 3), torch.ones(2, 1), torch.zeros(2).long()
ARRAY: Any = np.ones((2, 3), np.float32)
LISTS: Any = [[0.0] * 3] * 2
from_coordinates = pcnn.from_coordinates


def sites(n: int = 20, clouds: int = 3, channels: int = 2, stride: int = 1) -> pcnn.SparseTensor:
    grid = surface_grid(n, batch_size=clouds).strided(Kernel.of(stride, stride))
    return pcnn.SparseTensor(torch.randn(grid.rows, channels), grid)


def grid(n: int = 20, clouds: int = 1) -> VoxelGrid:
    return surface_grid(n, batch_size=clouds)


def points(n: int = 5, channels: int = 2) -> pcnn.SparseTensor:
    return pcnn.native_points(torch.randn(n, 3), torch.randn(n, channels), voxel_size=0.3)


def pointset(n: int = 2, **options: Any) -> PointSet:
    return point_set_of(torch.zeros(n, 3), **options)


def product(
    x: Sequence[int], weight: Sequence[int], skip: Sequence[int] = (), **options: Any
) -> Tensor:
    """Of features; a negative number of rows is that of the sites."""
    own = grid()
    made = own.map_to(own, K3, SortedSearch())
    operands = [torch.randn(own.rows if n < 0 else n, *more) for n, *more in (x, weight)]
    if skip:
        options["skip"] = torch.randn(own.rows if skip[0] < 0 else skip[0], skip[1])
    return convolution(*operands, made, Reference(), **options)


def mapped(n: int) -> KernelMap:
    return SortedSearch().build(grid(n), grid(n), K3)


def scattered(n: int = 10) -> Tensor:
    return torch.rand(n, 3)


def native(**change: Any) -> PointSet:
    return replace(scan(90), **{name: act(scan(90)) for name, act in change.items()})


def searched(kernel: Kernel) -> KernelMap:
    return RadiusSearch().build(points := scan(50), points, kernel)


def by_strangers() -> KernelMap:
    coarse = point_set_of(scattered(30)).strided(HALVED)
    return RadiusSearch().build(point_set_of(scattered(30)), coarse, HALVED)


INF, NAN = float("inf"), float("nan")
FOUR = torch.zeros(3, 4)
ENDLESS = torch.tensor([[0.0] * 3, [0.0, NAN, -INF], [0.0] * 3])
SHIFTED = torch.tensor([[0.0, -HALF + 1.5, 0], [0, HALF + 0.5, 0]]).double()
#: Arguments beside three points, that neither voxels nor native points are made of.
MAKERS: list[tuple[dict[str, Any], str]] = [
    ({"points": FOUR}, r"\[P, 3\]"),
    ({"points": ENDLESS}, "1 of 3 points are NaN or infinite, the first is 1"),
    ({"points": FOUR[:, 1:].long()}, "floating"),
    *(({"voxel_size": size}, "positive") for size in (0.0, (0.1, 0.2), INF, "0.1", None)),
    ({"batch": torch.zeros(2).long()}, "batch must be"),
    ({"batch": torch.full((3,), 0.5)}, "batch must hold integers"),
    ({"batch": torch.tensor([0, 1, 2]), "batch_size": 2}, "do not fit"),
    ({"batch": torch.tensor([0, -1, 0])}, "do not fit"),
    ({"batch_size": 600}, "1 to 511"),
]
#: Cells that are none.
NO_CELLS: list[tuple[Tensor, str]] = [
    (FOUR[:, 2:].long(), r"cells must be \[P, 3\] \(x, y, z\), got \(3, 2\)"),
    (FOUR.long(), r"batch=cells\[:, 0\]"),
    (torch.tensor([[0.0, 1, 2], [0, 0.5, 0]]), "1 of 2 rows are fractional.* first is 1"),
    *((torch.tensor([[0, value, 0]]), "1 of 1 rows are fractional") for value in (NAN, -INF)),
    (FOUR[:, 1:].bool(), "whole numbers, got torch.bool"),
    (FOUR[:, 1:].to(torch.complex64), "whole numbers"),
    *((torch.full((2, 3), far), "packed key") for far in (1 << 40, 1e30)),
    (torch.tensor([[HALF, 0, 0]]), "centre the cloud"),
]
V, T = ValueError, TypeError
Row = tuple[Callable[[], object], type[Exception], str]
GEOMETRY: list[Row] = [
    (lambda: VoxelGrid(grid(40).keys.flip(0), 1, 100), V, "unsorted"),
    (lambda: replace(grid(40), keys=grid(40).keys.repeat_interleave(2)), V, "row 1 is repeated"),
    (lambda: VoxelGrid(torch.tensor([-1]), 1, 100), V, "outside the 1 clouds"),
    (lambda: VoxelGrid(grid().coords, 1, 100), V, "keys must be"),
    (lambda: native(keys=lambda p: p.keys.flip(0)), V, "point set: keys"),
    (lambda: native(points=lambda p: p.points.double()), V, "points must be"),
    (lambda: native(origins=lambda p: p.origins[:1]), V, "origins must be"),
    (lambda: native(corners=lambda p: p.corners.float()), V, "corners must be"),
    (lambda: pack(grid().coords[:, 1:]), V, "coords must be"),
    (lambda: PointSet.collate([]), V, "at least one"),
    (lambda: PointSet.collate([pointset(), pointset(batch_size=2)]), V, "set 1 holds 2"),
    (lambda: PointSet.collate([pointset()] * 512), V, "at most 511"),
    (lambda: scan(50).map_to(scan(50), HALVED, RadiusSearch()), V, "takes tensor stride"),
    (lambda: pointset().map_to(pointset(batch_size=2), K3, RadiusSearch()), V, "1 clouds"),
    (lambda: pointset().generated(HALVED), V, "cannot generate native points"),
    (lambda: grid().map_to(grid(clouds=2), K3, BruteForce()), V, "clouds"),
    (
        lambda: (edge := grid_of_cells(torch.tensor([[131071, 0, 0]]))).map_to(
            edge, K3, BruteForce()
        ),
        V,
        "the kernel 1 more",
    ),
    (lambda: sites().geometry.dilated(Kernel.of(3, 2)), V, "stride 1"),  # type: ignore[attr-defined]
    (lambda: surface_grid(5, downsampling="ceiling"), V, "floor, reached"),
    *(
        (partial(make, **{"points": FOUR[:, 1:], "voxel_size": 0.1, **given}), V, word)
        for make in (quantize, point_set_of)
        for given, word in MAKERS
    ),
    *((partial(grid_of_cells, cells), V, word) for cells, word in NO_CELLS),
    (lambda: point_set_of(FOUR[:, 1:], thin=-1.0), V, "thin must be positive"),
    (lambda: point_set_of(FOUR[:, 1:].double() + 1e300), V, "offset"),
    (lambda: point_set_of(FOUR[:, 1:].double() + 2.0**46, voxel_size=0.25), V, "subtract"),
    (lambda: point_set_of(SHIFTED), V, r"cells lie at -131071\.\.131072 along y"),
    (lambda: Kernel.of(0), V, "kernel_size"),
    (lambda: Kernel.of(3, 0), V, "stride"),
    (lambda: Kernel.of(3, 1, 0), V, "dilation"),
    (lambda: Kernel.of((3, 3)), V, "three"),
    (lambda: VoxelGrid.collate([grid(clouds=2)]), V, "single clouds"),
    (lambda: VoxelGrid.collate([]), V, "at least one"),
    (lambda: grid().generated(HALVED), V, "divisible"),
    (lambda: grid().add_map(grid(), K3, mapped(50)), V, "is none of 27 slots"),
]
MAPS: list[Row] = [
    (lambda: searched(Kernel.of(2)), V, "odd kernel sizes"),
    (lambda: point_set_of(scattered(), memory=-1.0), V, "memory"),
    *(
        (lambda reach=reach: checked_reach(reach), V, "reach must be")
        for reach in (float("nan"), 0.0, -1.0)
    ),
    (by_strangers, V, "not made from the input points"),
]
OPS: list[Row] = [
    (lambda: product((3, 4), (27, 4, 2)), V, "features must be"),
    (lambda: product((-1, 4), (26, 4, 2)), V, "weight must be"),
    (lambda: product((-1, 4), (27, 2, 3), groups=2), V, "do not fit"),
    (lambda: product((-1, 4), (27, 6, 2), (3, 2)), V, "second features must be"),
    (lambda: product((-1, 4), (27, 6, 2), (-1, 2), bias=FEW), V, "bias"),
    (lambda: product((-1, 4), (27, 3, 2), (-1, 2), groups=2), V, "groups=1"),
    (
        lambda: from_coordinates(torch.tensor([[2, 0, 4], [2, 1, 4]]), ONES, tensor_stride=2),
        V,
        "1 of 2 cells",
    ),
    (lambda: from_coordinates(CELLS, ONES, tensor_stride=0), V, "must be at least 1"),
    (lambda: from_coordinates(torch.zeros(2, 4).long(), ONES, FEW), V, r"must be \[P, 3\]"),
    (lambda: devoxelize(sites(), CELLS, FEW, voxel_size=1.0, interpolation="l"), V, "trilinear"),
    (lambda: devoxelize(sites(), CELLS, voxel_size=1.0), V, "give the batch"),
    (lambda: devoxelize(points(), CELLS, voxel_size=1.0), T, "devoxelize takes sites"),
    (lambda: pcnn.lookup(sites(), CELLS + 0.5, FEW), V, "fractional"),
    (lambda: pcnn.native_points(torch.zeros(5, 3), CELLS), V, r"features must be \[5, C\]"),
    (lambda: Conv3d(2, 2, 3, engine="spira")(points()), V, "does not serve native points"),
    (lambda: Conv3d(2, 2, 3, engine="pointcnnpp")(sites()), V, "does not serve voxels"),
    (lambda: pcnn.plan(nn.Identity(), grid()), V, "in_channels"),
    (lambda: pcnn.plan(Conv3d(2, 4, 3), sites()), T, "geometry"),
    (lambda: pcnn.voxelize(CELLS, ONES, voxel_size=1.0, reduce="median"), V, "mean, sum, first"),
    *(
        (lambda make=make, size=size: make(CELLS, ONES, voxel_size=size), V, "voxel_size")
        for make in (pcnn.voxelize, pcnn.native_points)
        for size in (float("nan"), [1.0, 1.0], [1, 1, 0])
    ),
    (lambda: reduce_points(ONES, grid()), V, "features must be"),
    (lambda: pcnn.voxelize(CELLS, ONES.byte(), voxel_size=1.0), V, "floating point"),
    (lambda: reduce_points(ONES, replace(grid(), inverse=None)), V, "not made from points"),
    (lambda: resolve("warp"), V, "there are auto, reference"),
    *(
        (lambda engine=engine: resolve(engine, deterministic=True), V, "adds by atomics")
        for engine in ("spira", "pointcnnpp", Engine("own", BruteForce(), WEIGHT_STATIONARY))
    ),
    *(
        (lambda given=given: ENGINES["auto"].having(blocks=given), V, word)
        for given, word in (({"rows": 7}, "rows"), ({"warps": "4"}, "warps"), (7, "blocks"))
    ),
    (lambda: GatherScatter(streams=9), V, "streams"),
    (lambda: Triplets("x"), V, "sort"),  # type: ignore[arg-type]
]
LAYERS = (
    *(Conv3d(2, 2, 3), Conv3d(2, 2, 1), ConvTranspose3d(2, 2, 2, 2), MaxPool3d(2)),
    *(GlobalAvgPool(), FeatureWise(nn.ReLU())),
)
NN: list[Row] = [
    *(
        (lambda layer=layer, given=given: layer(given), T, type(layer).__name__)
        for layer in LAYERS
        for given in (torch.ones(4, 2), ARRAY)
    ),
    (lambda: Conv3d(4, 4, 3, groups=3), V, "groups"),
    *(
        (lambda size=size: Conv3d(4, 4, size), V, "kernel_size must be one integer or three")
        for size in (2.5, (3, 3, 2.5), "same", "333", (3, 3), None, np.float64(3), torch.ones(3))
    ),
    (lambda: Conv3d(0, 4, 3), V, "channels"),
    (lambda: ConvTranspose3d(2, 2, 2, 2)(points()), V, "cannot generate native points"),
    (lambda: SparseConv3d(2, 1, 3)(points()), T, "PointSet"),
    (lambda: Conv3d(2, 2, 2, 2)(points(), grid()), V, "from a PointSet to a VoxelGrid"),
    (lambda: normalize(nn.SyncBatchNorm(3), torch.zeros(4, 3), FEW[:1]), V, "spare rows"),
    (lambda: cat(), V, "at least one"),
    (lambda: cat([sites(), sites()]), T, "argument 0 is a list"),  # type: ignore[arg-type]
]
TENSOR: list[Row] = [
    *(
        (lambda shape=shape: sites(40, channels=3) + torch.rand(shape), V, "must be a number")
        for shape in [(2,), (7, 3), (2, 5, 3)]
    ),
    (lambda: sites(1, 1) * torch.rand(5, 2), V, "next to features"),
    (lambda: sites() * sites(30), V, "another geometry"),
    (lambda: sites() + "1", T, "unsupported operand"),  # type: ignore[operator]
    (lambda: sites(stride=2).dense(4, 1), V, "min_coord"),
    (lambda: sites().dense((3, 2, 4, 4, 4)), V, "shape"),
    (lambda: pcnn.SparseTensor(ONES, {}), T, "geometry must be"),  # type: ignore[arg-type]
    (lambda: pcnn.SparseTensor(CELLS, pointset(5)), V, "to match the geometry"),
]
#: Arrays and lists where a tensor is meant.
ARRAYS: list[Row] = [
    (lambda: pcnn.voxelize(LISTS, ONES, voxel_size=1.0), T, "^points must be a torch.Tensor"),
    (lambda: pcnn.voxelize(CELLS, ARRAY.astype(object), voxel_size=1.0), T, "^features must"),
    (lambda: grid_of_cells(ARRAY), T, "^cells must be"),
    (lambda: from_coordinates(ARRAY.astype("u8"), ONES), T, "^cells must have signed"),
    (lambda: from_coordinates(CELLS, ONES, FEW.to(torch.uint64)), T, "^batch must have signed"),
]


@pytest.mark.parametrize(
    ("call", "error", "word"),
    [*GEOMETRY, *MAPS, *OPS, *NN, *TENSOR, *ARRAYS],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_a_call_is_refused(call: Callable[[], object], error: type[Exception], word: str) -> None:
    with pytest.raises(error, match=word):
        call()


@pytest.mark.parametrize(
    "given",
    [
        lambda values: np.broadcast_to(values, (1, *values.shape))[0],  # read only
        lambda values: np.repeat(values, 2, axis=0)[::2],
        lambda values: values[::-1].copy()[::-1],
        lambda values: values.astype(values.dtype.newbyteorder()),
    ],
    ids=["read only", "strided", "backwards", "of the other byte order"],
)
def test_points_and_cells_may_be_arrays(given: Callable[[np.ndarray], np.ndarray]) -> None:
    random = np.random.default_rng(0)
    points, features = (random.random((20, n)).astype(np.float32) for n in (3, 2))
    batch, cells = random.integers(0, 2, 20), np.floor(points * 4)
    wide = random.integers(0, 9, (20, 3)) + 65526  # of which torch knows little if unsigned
    for make, places in (
        (partial(pcnn.voxelize, voxel_size=0.2), points),
        (partial(pcnn.native_points, voxel_size=0.2), points),
        (from_coordinates, cells),
        *((from_coordinates, wide.astype(kind)) for kind in (np.uint16, np.uint32)),
    ):
        found = make(*(given(one) for one in (places, features, batch)))
        ours = places.astype(np.int64) if places.dtype.kind == "u" else places
        expected = make(*(torch.from_numpy(one) for one in (ours, features, batch)))
        assert torch.equal(found.coords, expected.coords)
        assert torch.equal(found.features, expected.features)
