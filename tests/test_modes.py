"""Every way to run a network computes what the reference computes layer by layer.

A row of the table is a mode, an engine, a network, a cloud and a dtype: one body holds output, the
gradient of the features and those of all weights against the reference in float64.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

import pcnn
from pcnn.geometry import Geometry
from pcnn.models import MinkUNet42, ResNet18, ResUNetBN2C, SparseResNet21
from pcnn.ops import resolve
from pcnn.tensor import SparseTensor
from tests.clouds import surface
from tests.graphs.graphed import ROWS, TILES, rerun, tensors
from tests.tolerance import relative_rms

#: In evaluation map by map, planned, as graphs; in training map by map, planned, as graphs.
MODES = ("eager", "planned", "graphed", "learnt", "trained", "train_graphed")
NETS: dict[str, Callable[..., Any]] = {
    "minkunet": partial(MinkUNet42, 4, 3),
    "sparse_resnet": partial(SparseResNet21, 4),
    "resnet": partial(ResNet18, 4, 3),
    "resunet": partial(ResUNetBN2C, 4, 8, 3, False),
}
#: Points of clouds, seen a third of a cell apart.
CLOUDS = ("empty", "one", "line", "surface", "batch", "duplicates", "far")
#: Largest difference from the reference, relative RMS of all gradients and of the output.
BOUNDS = {torch.float64: 1e-8, torch.float32: 2e-3, torch.float16: 5e-2}
CALLS = 5  # of which the last are graphs, where there are any

#: Engines of the host: (name, on voxels, on native points).
HOST = (("auto", True, True), ("tiles", True, False), ("rows", False, True))
DEVICE = (
    *(("auto", True, True), ("pointcnnpp", False, True)),
    *((name, True, False) for name in ("spira", "minuet", "torchsparse")),
)


def table(engines: Any, dtypes: Any, seed: int, number: int) -> list[tuple[Any, ...]]:
    """So many rows of the product, in which every pair of mode and any other value occurs."""
    every = itertools.product(MODES, engines, NETS, CLOUDS, ("voxel", "point"), dtypes)
    rows = [
        (mode, name, net, cloud, kind, dtype)
        for mode, (name, voxels, points), net, cloud, kind, dtype in every
        if (voxels if kind == "voxel" else points)
    ]
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed)).tolist()
    left = {(row[0], place, value) for row in rows for place, value in enumerate(row)}
    chosen: list[tuple[Any, ...]] = []
    for index in order:
        pairs = {(rows[index][0], place, value) for place, value in enumerate(rows[index])}
        if pairs & left or len(chosen) < number:
            chosen.append(rows[index])
            left -= pairs
    return sorted(chosen, key=str)


def geometry_of(cloud: str, kind: str, device: str) -> Geometry:
    n = {"empty": 0, "one": 1, "line": 40}.get(cloud, 3_000 if device == "cuda" else 160)
    draw = torch.Generator().manual_seed(n)
    points = surface(n, seed=1) * 0.07 + torch.rand(n, 3, generator=draw) * 0.02
    if cloud == "line":
        points[:, 1:] = 0.01
    if cloud == "duplicates":
        points = torch.cat([points, points[::2]])
    if cloud == "far":
        points = points + 6_000
    batch = torch.arange(len(points)) % 3 if cloud == "batch" else None
    make = pcnn.native_points if kind == "point" else pcnn.voxelize
    given = points.double(), torch.zeros(len(points), 1), batch
    x = make(*given, voxel_size=0.1, batch_size=3 if cloud == "batch" else 1)
    return x.geometry.to(device)


def network(name: str, engine: Any, mode: str, device: str) -> Any:
    torch.manual_seed(0)
    net = NETS[name](width=0.125, engine=engine).double().to(device)
    net.train(mode in MODES[3:])
    net.plans_input, net.graphs = mode not in ("eager", "learnt"), "graphed" in mode
    if net.graphs and device == "cpu":
        net.start_graphs(capture=rerun)
        net._graphs._given = net._graphs._given = rerun
    return net


def run(net: Any, x: SparseTensor, cast: torch.dtype) -> list[Tensor]:
    """Output; in training then the gradients of the features and of all weights."""
    features = x.features.detach().requires_grad_(net.training)
    with torch.set_grad_enabled(net.training):
        with torch.autocast(x.device.type, torch.float16, enabled=cast == torch.float16):
            found = tensors(net(x.replace(features)))
        if not net.training or not len(x):
            return found
        loss = sum((one.double() * one.detach().cos().double()).sum() for one in found)
        wanted = [features, *net.parameters()]
        grads = torch.autograd.grad(loss, wanted, allow_unused=True)  # type: ignore[arg-type]
    return [*found, *(one for one in grads if one is not None)]


def check(row: tuple[Any, ...], device: str) -> None:
    mode, name, net_name, cloud, kind, dtype = row
    if mode in MODES[3:] and (cloud in ("empty", "one", "line") or net_name == "resnet"):
        cloud = "surface"  # norms have no variance on the coarsest level
        net_name = "minkunet" if net_name == "resnet" else net_name
    engine = {"tiles": TILES, "rows": ROWS}.get(name) or resolve(name)
    geometry = geometry_of(cloud, kind, device)
    draw = torch.Generator().manual_seed(5)
    features = torch.randn(geometry.rows, 4, generator=draw, dtype=torch.float64).to(device)
    training = mode in MODES[3:]
    truth = network(net_name, resolve("reference"), "learnt" if training else "eager", device)
    wanted = run(truth, SparseTensor(features, geometry.to(device)), torch.float64)
    net = network(net_name, engine, mode, device)
    own = torch.float32 if dtype == torch.float16 else dtype
    net.to(own)
    for _ in range(CALLS if net.graphs else 1):
        at = geometry_of(cloud, kind, device)
        found = run(net, SparseTensor(features.to(own), at), dtype)
    bound = BOUNDS[dtype]
    for one, other in zip(found[: len(tensors(wanted))], wanted, strict=False):
        assert one.shape == other.shape
    together = [torch.cat([t.flatten().double() for t in part]) for part in (found, wanted)]
    assert relative_rms(*together) <= (bound if not training else 5 * bound)
    if net.graphs and geometry.rows > 1:
        served = sum(one.replays for one in (net._steps if training else (net._graphs,))) > 0
        assert served or net.graphs_reason is not None
        assert served or name in ("auto", "pointcnnpp", "torchsparse", "minuet", "spira")


@pytest.mark.parametrize("row", table(HOST, (torch.float64, torch.float32), 0, 40), ids=str)
def test_a_mode_computes_what_the_reference_does(row: tuple[Any, ...]) -> None:
    check(row, "cpu")


@pytest.mark.gpu
@pytest.mark.long
@pytest.mark.parametrize("row", table(DEVICE, (torch.float32, torch.float16), 1, 90), ids=str)
def test_a_mode_on_a_device_computes_what_the_reference_does(row: tuple[Any, ...]) -> None:
    check(row, "cuda")
