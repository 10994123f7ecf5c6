"""Time to find the triplets of native points, with the layouts that products read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from pcnn.bench.conformance import check_engine
from pcnn.bench.harness import Call, Calls, measure, same
from pcnn.bench.layers.layer import Layer, new_map
from pcnn.bench.layers.measured import Place
from pcnn.bench.layers.setting import LayerShape
from pcnn.bench.mapping.products import bare
from pcnn.bench.native.cloud import Cloud
from pcnn.bench.native.layers import place_of
from pcnn.bench.native.lines import Line, sites_of
from pcnn.bench.native.setting import Setting
from pcnn.bench.rows import Row
from pcnn.bench.verify import CheckFailed, Configuration, Proof, check_triplets, check_values
from pcnn.geometry import Geometry, Kernel, KernelMap, PointSet, VoxelGrid

#: Triplets by slot; with them what a forward pass reads; with that what backward reads too.
PRODUCTS = ("pairs", "ready", "train")
#: Points lie where they were, to rounding in float32, in cells.
NEAR = 1e-3
#: Channels of the layer whose values show that the layouts are right.
CHECKED = LayerShape(8, 8, 3)


def triplet_rows(setting: Setting, figure: str) -> Iterator[Row]:
    """Check, then time, the maps of native points and of voxels, and the sorting of points."""
    for cloud in setting.scans():
        for size in (3, 5):
            kernel = Kernel.of(size)
            lines = setting.chosen("voxel", "degraded", "native", "pointcnnpp")
            for geometry in dict.fromkeys(line.geometry for line in lines):
                place = place_of(cloud, geometry, kernel)
                for line in lines:
                    if line.geometry == geometry:
                        yield from _of_line(setting, figure, place, line)
        for geometry in ("voxel", "native"):
            yield _sorting(setting, figure, cloud, geometry)


def _sorting(setting: Setting, figure: str, cloud: Cloud, geometry: str) -> Row:
    """From points to sites, sorted."""

    def sort() -> Geometry:
        return sites_of(geometry, cloud.points, cloud.grid_size)

    sites = sort()
    identity: dict[str, Any] = {"n": sites.rows, "figure": figure}
    identity["params"] = {"of": "points to sites"}
    configuration = Configuration(geometry, cloud.name, str(setting.device), Kernel.of(1))
    check_sites(configuration, sites, cloud).admit(configuration)
    measured = _measure(setting, same(sort))
    return Row("map", cloud.name, geometry, checked=True, **identity, **measured)


def check_sites(configuration: Configuration, sites: Geometry, cloud: Cloud) -> Proof:
    """Check that every point has its row: in its own cell, and on native points at its own place.

    Raises:
        CheckFailed: one has not.
    """
    assert sites.inverse is not None
    cells = torch.floor(cloud.points.double() / cloud.grid_size).long()
    batch = torch.zeros_like(cells[:, :1])
    if isinstance(sites, VoxelGrid):
        found = torch.equal(sites.coords.long()[sites.inverse], torch.cat([batch, cells], dim=1))
    else:
        assert isinstance(sites, PointSet)
        places = sites.positions[sites.inverse]
        found = bool(((places - cloud.points).abs() <= NEAR * cloud.grid_size).all())
    ordered = bool((sites.keys[1:] >= sites.keys[:-1]).all())
    if not (found and ordered):
        raise CheckFailed(f"{configuration}: rows are not those of the points, sorted by cell")
    return Proof(configuration)


def _of_line(setting: Setting, figure: str, place: Place, line: Line) -> Iterator[Row]:
    for product in PRODUCTS:
        what = "map" if line.geometry == "voxel" else "radius"
        identity: dict[str, Any] = {
            "workload": place.workload,
            "engine": line.name,
            "product": product,
            "n": place.grid.rows,
            "triplets": place.triplets,
            "k": place.kernel.size[0],
            "stride": 1,
            "figure": figure,
        }
        configuration = Configuration(
            line.name,
            place.workload,
            str(setting.device),
            place.kernel,
            setting.dtype,
            product=product,
        )
        try:
            proof = _checked(configuration, place, line)
        except Exception as error:  # a compiler's errors have no base of their own
            reason = f"{type(error).__name__}: {error}"
            yield Row(what, params={"left_out": reason}, **identity)
            continue
        measured = _measure(setting, _calls(place, line, product))
        proof.admit(configuration)
        yield Row(what, checked=True, **identity, **measured)


def _measure(setting: Setting, calls: Calls) -> dict[str, Any]:
    measured = measure(
        calls,
        setting.device,
        repeats=max(setting.repeats, 20),
        budget_s=setting.budget_s,
        count=setting.count,
    )
    return measured.columns()


def _checked(configuration: Configuration, place: Place, line: Line) -> Proof:
    """Check the engine, its triplets here, and the products over all layouts in float64."""
    check_engine(line.engine, place.grid.device, isinstance(place.grid, PointSet))
    built = new_map(line.engine, place.grid, place.kernel)
    proof = check_triplets(configuration, built, place.pairs)
    if configuration.product == "pairs":
        return proof
    operands = place.operands(CHECKED, str(configuration.dtype))
    layer = Layer(line.engine, place.grid, place.kernel, operands)
    results = layer.results("train" if configuration.product == "train" else "layer")
    truth = place.truth(operands, backward=True)
    wanted = {name: truth[name] for name in results}
    return check_values(configuration, results, wanted, place.longest)


def _calls(place: Place, line: Line, product: str) -> Calls:
    def prepared(_: int) -> Call:
        sites = bare(place.grid)

        def build() -> object:
            built = new_map(line.engine, sites, place.kernel)
            deliver(built, line, product, sites.device)
            return built

        return build

    return prepared


def deliver(built: KernelMap, line: Line, product: str, device: torch.device) -> None:
    """Have a kernel map hold a product, for the dataflow of a line.

    Args:
        built: the map.
        line: whose engine computes over it.
        product: a name in `PRODUCTS`.
        device: where the map lies.
    """
    flow = line.engine.dataflow_for(built, device)
    if product == "pairs":
        built.layout("pairs")
        return
    built.layouts(flow.needs)
    if product == "train":
        built.layouts(flow.needs_vvor)
        if not built.symmetric:
            built.transpose().layouts(flow.needs)
