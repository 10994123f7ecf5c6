"""Time to find the triplets of native points, with the layouts that products read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from pcnn.bench.clouds import Cloud
from pcnn.bench.conformance import check_engine
from pcnn.bench.harness import same
from pcnn.bench.layer_shape import LayerShape
from pcnn.bench.layers.layer import Layer, new_map, operands_at, true_layer
from pcnn.bench.native.layers import place_of
from pcnn.bench.native.variants import Variant, sites_of
from pcnn.bench.place import Place, bare
from pcnn.bench.rows import Row, described
from pcnn.bench.run import Case, Checked, run
from pcnn.bench.setting import NativeSetting
from pcnn.bench.trace import Call
from pcnn.bench.verify import CheckFailed, Proof, check_triplets, check_values
from pcnn.geometry import Geometry, Kernel, KernelMap, PointSet, VoxelGrid

#: Triplets by slot; with them what a forward pass reads; with that what backward reads too.
PRODUCTS = ("pairs", "ready", "train")
#: Points lie where they were, to rounding in float32, in cells.
NEAR = 1e-3
#: Channels of the layer whose values show that the layouts are right.
CHECKED = LayerShape(8, 8, 3)


def triplet_rows(setting: NativeSetting, figure: str) -> Iterator[Row]:
    """Check, then time, the maps of native points and of voxels, and the sorting of points."""
    often = setting.having(repeats=max(setting.repeats, 20))
    for cloud in setting.scans():
        for size in (3, 5):
            variants = setting.chosen("voxel", "degraded", "native", "pointcnnpp")
            for geometry in dict.fromkeys(variant.geometry for variant in variants):
                place = place_of(cloud, geometry, Kernel.of(size))
                cases = (
                    map_case(setting, place, variant, product, figure)
                    for variant in variants
                    if variant.geometry == geometry
                    for product in PRODUCTS
                )
                yield from run(cases, often)
        yield from run((sort_case(cloud, name, figure) for name in ("voxel", "native")), often)


def sort_case(cloud: Cloud, geometry: str, figure: str) -> Case:
    """From points to sites, sorted."""
    rows = sites_of(geometry, cloud.points, cloud.grid_size).rows
    said = {"of": "points to sites"}
    row = Row("map", cloud.name, geometry, n=rows, figure=figure, params=said)

    def sort() -> Geometry:
        return sites_of(geometry, cloud.points, cloud.grid_size)

    return Case(row, lambda: (check_sites(row, sort(), cloud), lambda: same(sort)))


def check_sites(row: Row, sites: Geometry, cloud: Cloud) -> Proof:
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
        raise CheckFailed(f"{described(row)}: rows are not those of the points, sorted by cell")
    return Proof(row)


def map_case(
    setting: NativeSetting, place: Place, variant: Variant, product: str, figure: str
) -> Case:
    """A product of a variant's map, from the sorted keys of the sites alone."""
    what = "map" if variant.geometry == "voxel" else "radius"
    row = place.row(what, variant.name, figure, product=product)
    engine, device = variant.engine, setting.where

    def prepared(_: int) -> Call:
        sites = bare(place.grid)

        def build() -> object:
            built = new_map(engine, sites, place.kernel)
            deliver(built, variant, product, sites.device)
            return built

        return build

    def check() -> Checked:
        """The engine, its triplets here, and the products over all layouts in float64."""
        check_engine(engine, device, isinstance(place.grid, PointSet))
        built = new_map(engine, place.grid, place.kernel)
        proof = check_triplets(row, built, place.pairs)
        if product != "pairs":
            operands = operands_at(place, CHECKED, setting.dtype_name)
            layer = Layer(engine, place.grid, place.kernel, operands)
            results = layer.results("train" if product == "train" else "layer")
            truth = true_layer(place, operands, backward=True)
            wanted = {name: truth[name] for name in results}
            check_values(replace(row, dtype=setting.dtype_name), results, wanted, place.longest)
        return proof, lambda: prepared

    return Case(row, check)


def deliver(built: KernelMap, variant: Variant, product: str, device: torch.device) -> None:
    """Have a kernel map hold a product, for the dataflow of a variant."""
    flow = variant.engine.choose(built, device)
    if product == "pairs":
        built.layout("pairs")
        return
    built.layouts(flow.needs)
    if product == "train":
        built.layouts(flow.needs_weight_grad)
        if not built.symmetric:
            built.transpose().layouts(flow.needs)
