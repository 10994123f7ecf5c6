"""Rows of single layers on clouds, variant by variant."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from pcnn.bench.clouds import SIMULATED, Cloud, room
from pcnn.bench.engines import Entry
from pcnn.bench.layer_shape import LayerShape
from pcnn.bench.layers.cases import layer_cases
from pcnn.bench.layers.layer import products_of
from pcnn.bench.native.variants import Variant, sites_of
from pcnn.bench.place import Params, Place
from pcnn.bench.rows import Row
from pcnn.bench.run import run
from pcnn.bench.setting import NativeSetting
from pcnn.dataflows import Dataflow
from pcnn.dataflows.row_stationary import RowStationary
from pcnn.dataflows.triplets import Triplets
from pcnn.dataflows.weight_stationary import WeightStationary
from pcnn.geometry import Geometry, Kernel

#: The layer of the paper's figures, and the second one that its code was timed on.
PAPER, SECOND = LayerShape(64, 128, 3), LayerShape(64, 64, 3)
#: All growing rooms together, in result rows.
ROOMS = f"rooms{SIMULATED}"
#: A cloud, and settings that its rows name.
Named = tuple[Params, Cloud]

#: Groups of channels whose layers are compared.
GROUPS = (1, 2, 4, 8, 16)
#: Two maps are of the same size if their triplets differ by no more than this share.
SAME = 0.002


def place_of(cloud: Cloud, geometry: str, kernel: Kernel) -> Place:
    """A cloud on a geometry, with a submanifold kernel."""
    sites = sites_of(geometry, cloud.points, cloud.grid_size)
    return Place(cloud.name, sites, kernel)


def layer_rows(
    setting: NativeSetting,
    figure: str,
    clouds: Iterable[Named],
    variants: Sequence[Variant],
    shapes: Sequence[LayerShape],
    kinds: Sequence[str],
) -> Iterator[Row]:
    """Check, then time, layers of one kernel on clouds by all variants."""
    (kernel,) = {shape.kernel for shape in shapes}
    for params, cloud in clouds:
        for geometry in dict.fromkeys(variant.geometry for variant in variants):
            place = place_of(cloud, geometry, kernel)
            for shape in shapes:
                own = {**params, "geometry": geometry}
                if shape.groups > 1:
                    own["groups"] = shape.groups
                entries: list[Entry] = [
                    (variant.engine, own) for variant in variants if variant.geometry == geometry
                ]
                with products_of(setting.dtype_name):
                    cases = layer_cases(setting, figure, place, shape, kinds, entries)
                    yield from run(cases, setting)


def growing(setting: NativeSetting) -> Iterator[Named]:
    """Every room in all sizes under one name, with its number and the points asked for."""
    for number in range(setting.rooms):
        for points in setting.size_list:
            cloud = replace(room(number, points, setting.where), name=ROOMS)
            yield {"room": number, "points": points}, cloud


def over_rooms(*kinds: str) -> Callable[[NativeSetting, str], Iterator[Row]]:
    """The paper's layer on growing rooms."""

    def measure(setting: NativeSetting, figure: str) -> Iterator[Row]:
        yield from layer_rows(setting, figure, growing(setting), setting.variants, [PAPER], kinds)

    return measure


def scanned(setting: NativeSetting, figure: str) -> Iterator[Row]:
    """The layers that the official code was timed on, forward, backward and both."""
    kinds = ("layer", "backward", "train", "map+layer", "map+train")
    yield from layer_rows(
        setting, figure, _scans(setting), setting.variants, [PAPER, SECOND], kinds
    )


def _scans(setting: NativeSetting) -> Iterator[Named]:
    for cloud in setting.scans():
        yield {}, cloud


def in_groups(setting: NativeSetting, figure: str) -> Iterator[Row]:
    """The paper's layer in groups of channels."""
    shapes = [replace(PAPER, groups=groups) for groups in GROUPS]
    variants = setting.chosen("voxel", "degraded", "native", "pointcnnpp")
    kinds = "layer", "backward", "train"
    yield from layer_rows(setting, figure, _scans(setting), variants, shapes, kinds)


def by_dataflow(setting: NativeSetting, figure: str) -> Iterator[Row]:
    """Layers on native points by every dataflow; triplets sorted by k, i and j (Eq. 3)."""
    flows: list[Dataflow] = [RowStationary(), WeightStationary()]
    flows += [Triplets("k"), Triplets("i"), Triplets("j")]
    variants = [
        Variant.of(flow.name, "native", replace(variant.engine, dataflow=flow))
        for variant in setting.chosen("native")
        for flow in flows
    ]
    kinds = "layer", "train"
    yield from layer_rows(setting, figure, _scans(setting), variants, [PAPER, SECOND], kinds)


def of_same_size(setting: NativeSetting, figure: str) -> Iterator[Row]:
    """Layers on native points and on voxels whose maps have as many triplets.

    Of the two maps of a cloud the larger one is built on fewer points, a part of the cloud from one
    side, until both have the same number of triplets.
    """
    kinds = ("layer", "backward", "train")
    for cloud in setting.scans():
        voxel, native = (setting.chosen(name) for name in ("voxel", "native"))
        if not (voxel and native):
            return
        parts = same_triplets(cloud, *voxel, *native)
        for variant, part in zip((*voxel, *native), parts, strict=True):
            named: Named = {"cloud": cloud.name}, part
            yield from layer_rows(setting, figure, [named], [variant], [PAPER, SECOND], kinds)


def same_triplets(cloud: Cloud, first: Variant, second: Variant) -> tuple[Cloud, Cloud]:
    """Parts of a cloud on which the maps of two variants have the same number of triplets."""
    counts = [_triplets(cloud, variant) for variant in (first, second)]
    fewer = min(counts)
    parts = [
        cloud if count == fewer else _cut(cloud, variant, fewer)
        for count, variant in zip(counts, (first, second), strict=True)
    ]
    return parts[0], parts[1]


def _cut(cloud: Cloud, variant: Variant, triplets: int) -> Cloud:
    """The part of a cloud from one side whose map has so many triplets."""
    order = cloud.points[:, 0].argsort(stable=True)
    low, high = 0, len(order)
    while high - low > 1:
        middle = (low + high) // 2
        part = replace(cloud, points=cloud.points[order[:middle]])
        found = _triplets(part, variant)
        if abs(found - triplets) <= SAME * triplets:
            return part
        low, high = (middle, high) if found < triplets else (low, middle)
    return replace(cloud, points=cloud.points[order[:high]])


def _triplets(cloud: Cloud, variant: Variant) -> int:
    sites: Geometry = sites_of(variant.geometry, cloud.points, cloud.grid_size)
    return sites.kernel_map(sites, PAPER.kernel, variant.engine).triplets
