"""TorchSparse Table 1: adaptive groupings searched in one place, and used in others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import torch

from pcnn.bench.engines import Entry, on
from pcnn.bench.harness import Repeats, same, wall_time
from pcnn.bench.layer_shape import LayerShape, layer_shapes
from pcnn.bench.layers.cases import layer_rows
from pcnn.bench.layers.layer import torch_dtype
from pcnn.bench.place import Place
from pcnn.bench.rows import Row
from pcnn.bench.setting import LayersSetting
from pcnn.dataflows.gather_scatter import GatherScatter
from pcnn.dataflows.grouping import Adaptive, Group, search_adaptive
from pcnn.dataflows.padded_buffer import multiply_block, padded_buffer
from pcnn.dataflows.torch_sums import per_group
from pcnn.maps.hash_table import HashTable
from pcnn.ops.engine import Engine

#: A coarse search space: tolerances, and rows from which single products serve.
EPSILONS = (0.0, 0.1, 0.25, 0.5, 1.0)
FROM_ROWS = (0.0, 4096.0, 65536.0, float("inf"))
#: Layers of MinkUNet by its width.
WIDTHS = {1.0: layer_shapes("32:32:3,96:96:3"), 0.5: layer_shapes("16:16:3,48:48:3")}


@dataclass(frozen=True)
class _Given:
    """Groups that are given, whatever the sizes, with the name of the way of grouping."""

    found: tuple[Group, ...]
    name: str = "given"

    def groups(self, sizes: Sequence[int], skip: int = -1) -> tuple[Group, ...]:
        """See `pcnn.dataflows.grouping.Grouping.groups`."""
        return self.found


def of_scenes(setting: LayersSetting, figure: str) -> Iterator[Row]:
    """Table 1a: search on every scene, then time what was found on every scene."""

    @cache
    def entries(shape: LayerShape) -> list[Entry]:
        return [
            _engine(setting, _found(setting, number, shape), {"searched_on": scene.name})
            for number, scene in enumerate(setting.scenes)
        ]

    return layer_rows(setting, figure, entries, WIDTHS[1.0], ["layer"])


def of_widths(setting: LayersSetting, figure: str) -> Iterator[Row]:
    """Table 1b: search for every width of MinkUNet, then time what was found for every width."""
    for number, scene in enumerate(setting.scenes):
        found: dict[tuple[float, int], Adaptive] = {
            (width, place): _found(setting, number, shape)
            for width, shapes in WIDTHS.items()
            for place, shape in enumerate(shapes)
        }
        for shapes in WIDTHS.values():
            for place, shape in enumerate(shapes):
                entries = [
                    _engine(setting, found[width, place], {"searched_for": f"width {width:g}"})
                    for width in WIDTHS
                ]
                chosen = setting.having(scenes=[scene])
                yield from layer_rows(
                    chosen,
                    figure,
                    lambda _, entries=entries: entries,  # type: ignore[misc]
                    [shape],
                    ["layer"],
                )


def _found(setting: LayersSetting, scene: int, shape: LayerShape) -> Adaptive:
    place = Place.of(setting.scenes[scene], shape.kernel, setting.where)
    return searched(setting, place, shape)


def _engine(setting: LayersSetting, found: Adaptive, where: dict[str, str]) -> Entry:
    engine = Engine("torchsparse", on(setting.where, HashTable()), GatherScatter(found))
    return engine, {**where, "grouping": found.name}


def searched(setting: LayersSetting, place: Place, shape: LayerShape) -> Adaptive:
    """The quickest adaptive grouping of a layer's products on a scene."""
    dtype, device = torch_dtype(setting.dtype_name), setting.where
    sizes = [len(j) for j, _ in place.pairs]
    weight = torch.ones(place.kernel.volume, shape.c_in, shape.c_out, dtype=dtype, device=device)
    matrices = per_group(weight, 1)
    ends = [0]
    for size in sizes:
        ends.append(ends[-1] + size)

    def cost(_: Sequence[int], groups: tuple[Group, ...]) -> float:
        buffer = padded_buffer(tuple(ends), _Given(groups), -1, False)
        rows = torch.ones(buffer.rows, shape.c_in, dtype=dtype, device=device)
        products = rows.new_empty(buffer.rows, shape.c_out)

        def run() -> None:
            for block in buffer.blocks:
                part = rows[block.start : block.end]
                multiply_block(part, matrices, products[block.start :], block)

        return wall_time(same(run), device, Repeats(5, 2, 0.2)).median

    return search_adaptive([sizes], cost, epsilons=EPSILONS, thresholds=FROM_ROWS)
