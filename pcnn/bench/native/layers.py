"""Rows of single layers on clouds, line by line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from pcnn.bench.layers.layer import products_of
from pcnn.bench.layers.measured import Entry, Place, rows_at
from pcnn.bench.layers.setting import LayerShape
from pcnn.bench.native import oracle
from pcnn.bench.native.cloud import Cloud
from pcnn.bench.native.lines import Line, sites_of
from pcnn.bench.native.setting import PAPER, SECOND, Setting
from pcnn.bench.rows import Row
from pcnn.dataflows import Dataflow
from pcnn.dataflows.row_stationary import RowStationary
from pcnn.dataflows.triplets import Triplets
from pcnn.dataflows.weight_stationary import WeightStationary
from pcnn.geometry import Geometry, Kernel
from pcnn.ops.kernel_maps import map_between

Params = Mapping[str, int | float | str]
#: A cloud, and settings that its rows name.
Named = tuple[Params, Cloud]

#: Groups of channels whose layers are compared.
GROUPS = (1, 2, 4, 8, 16)
#: Two maps are of the same size if their triplets differ by no more than this share.
SAME = 0.002


def place_of(cloud: Cloud, geometry: str, kernel: Kernel) -> Place:
    """A cloud on a geometry, with the oracle's triplets of a submanifold kernel.

    Args:
        cloud: on the device.
        geometry: a name in `pcnn.bench.native.lines.GEOMETRIES`.
        kernel: of stride 1.
    """
    sites = sites_of(geometry, cloud.points, cloud.grid_size)
    return Place(cloud.name, sites, kernel, oracle.triplets(sites, sites, kernel), sites.rows)


def layer_rows(
    setting: Setting,
    figure: str,
    clouds: Iterable[Named],
    lines: Sequence[Line],
    shapes: Sequence[LayerShape],
    kinds: Sequence[str],
) -> Iterator[Row]:
    """Check, then time, layers on clouds by all lines; see `pcnn.bench.layers.measured`.

    Args:
        setting: dtype, device and how often to repeat.
        figure: name of the figure.
        clouds: on the device, each with settings that its rows name.
        lines: to compare.
        shapes: of the layers, all of one kernel.
        kinds: kinds of rows.
    """
    of_layers = setting.of_layers
    (kernel,) = {shape.kernel for shape in shapes}
    for params, cloud in clouds:
        for geometry in dict.fromkeys(line.geometry for line in lines):
            place = place_of(cloud, geometry, kernel)
            for shape in shapes:
                own = {**params, "geometry": geometry}
                if shape.groups > 1:
                    own["groups"] = shape.groups
                entries: list[Entry] = [
                    (line.engine, own) for line in lines if line.geometry == geometry
                ]
                with products_of(setting.dtype):
                    yield from rows_at(of_layers, figure, place, shape, kinds, entries)


def over_rooms(*kinds: str) -> Callable[[Setting, str], Iterator[Row]]:
    """The paper's layer on growing rooms."""

    def measure(setting: Setting, figure: str) -> Iterator[Row]:
        yield from layer_rows(setting, figure, setting.growing(), setting.lines, [PAPER], kinds)

    return measure


def scanned(setting: Setting, figure: str) -> Iterator[Row]:
    """The layers that the official code was timed on, forward, backward and both."""
    kinds = ("layer", "backward", "train", "map+layer", "map+train")
    yield from layer_rows(setting, figure, _scans(setting), setting.lines, [PAPER, SECOND], kinds)


def _scans(setting: Setting) -> Iterator[Named]:
    for cloud in setting.scans():
        yield {}, cloud


def in_groups(setting: Setting, figure: str) -> Iterator[Row]:
    """The paper's layer in groups of channels."""
    shapes = [replace(PAPER, groups=groups) for groups in GROUPS]
    lines = setting.chosen("voxel", "degraded", "native", "pointcnnpp")
    kinds = "layer", "backward", "train"
    yield from layer_rows(setting, figure, _scans(setting), lines, shapes, kinds)


def by_dataflow(setting: Setting, figure: str) -> Iterator[Row]:
    """Layers on native points by every dataflow; triplets sorted by k, i and j (Eq. 3)."""
    flows: list[Dataflow] = [RowStationary(), WeightStationary()]
    flows += [Triplets("k"), Triplets("i"), Triplets("j")]
    lines = [
        Line.of(flow.name, "native", replace(line.engine, dataflow=flow))
        for line in setting.chosen("native")
        for flow in flows
    ]
    kinds = "layer", "train"
    yield from layer_rows(setting, figure, _scans(setting), lines, [PAPER, SECOND], kinds)


def of_same_size(setting: Setting, figure: str) -> Iterator[Row]:
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
        for line, part in zip((*voxel, *native), parts, strict=True):
            named: Named = {"cloud": cloud.name}, part
            yield from layer_rows(setting, figure, [named], [line], [PAPER, SECOND], kinds)


def same_triplets(cloud: Cloud, first: Line, second: Line) -> tuple[Cloud, Cloud]:
    """Parts of a cloud on which the maps of two lines have the same number of triplets."""
    counts = [_triplets(cloud, line) for line in (first, second)]
    fewer = min(counts)
    parts = [
        cloud if count == fewer else _cut(cloud, line, fewer)
        for count, line in zip(counts, (first, second), strict=True)
    ]
    return parts[0], parts[1]


def _cut(cloud: Cloud, line: Line, triplets: int) -> Cloud:
    """The part of a cloud from one side whose map has so many triplets."""
    order = cloud.points[:, 0].argsort(stable=True)
    low, high = 0, len(order)
    while high - low > 1:
        middle = (low + high) // 2
        part = replace(cloud, points=cloud.points[order[:middle]])
        found = _triplets(part, line)
        if abs(found - triplets) <= SAME * triplets:
            return part
        low, high = (middle, high) if found < triplets else (low, middle)
    return replace(cloud, points=cloud.points[order[:high]])


def _triplets(cloud: Cloud, line: Line) -> int:
    sites: Geometry = sites_of(line.geometry, cloud.points, cloud.grid_size)
    return map_between(sites, sites, PAPER.kernel, line.engine).triplets
