"""Where the time of a scan goes, stage by stage, and how far each stage is from its floor.

Stages are told apart in the trace of one call by the names of kernels. Each has some that no stage
before it has, and others (sorting, fills, sums) belong to the stage that is running. A few run
beside others and are told by their names alone. Products over kernel maps are those of the
convolutions in order, so that each, with what follows it, belongs to the level of its output sites.

A floor is the least time that the device takes for the stage alone. Operands are read once and
results written once at the bandwidth of the memory. Of layers it is the arithmetic at the rate of
matrix products, if that takes longer. Stages could share what they read, so the floor of all of
them is no strict bound of the whole. Everything of a network on a scan passes between stages, and
most of it through the L2 cache, which is quicker than the memory.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from pcnn.bench.latency.gate import Gate
from pcnn.bench.native.network import Points
from pcnn.bench.trace import KernelTime
from pcnn.geometry import KernelMap
from pcnn.nn.planned import PlannedModule
from pcnn.runtime.layer_calls import ObservedCall, run_observed
from pcnn.runtime.timing import convolution_floor_ms, known_bandwidth

COPY, SORT, LEVELS, MAPS, TILES, REDUCE, HEAD = (
    "copy",
    "sort and pack",
    "levels",
    "maps",
    "tiles",
    "voxel features",
    "head and output",
)
#: Names of kernels that begin a stage, in the order of the stages.
BEGINS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (SORT, re.compile(r"cells_of_points|pack_cells|extent|cell_keys")),
    (LEVELS, re.compile(r"level_keys|mark_cells|place_level|place_points|bound_box|candidates")),
    (MAPS, re.compile(r"search|windows|disjoint|count_neighbours|fill_neighbours|parents")),
    (TILES, re.compile(r"mask_keys|row_masks|tile_|slot_bits|row_keys|first_steps|row_lists")),
    (REDUCE, re.compile(r"index_add|indexFunc")),
)
#: Names of kernels of a stage that graphs run beside others.
BESIDE = ((REDUCE, re.compile(r"reduce_points")), (LEVELS, re.compile(r"rows_above")))
#: Names of kernels that are a product over a kernel map, and of those that finish one.
PRODUCT = re.compile(r"implicit_gemm|stationary|dense_slots|mvmr|::mm|::bmm|batched_gemm")
FINISH = re.compile(r"finish")
#: Bytes of a key, a row number and a point's coordinates.
KEY, INDEX, POINT = 8, 4, 12


@dataclass(frozen=True)
class Layer:
    """Sizes of one convolution.

    Args:
        level: tensor stride of its output sites.
        has_map: whether it reads a kernel map; one of a single slot is a matrix product.
        n_in: input rows.
        n_out: output rows.
        triplets: number of triplets T.
        c_in: input channels of a group.
        c_out: output channels.
        weights: number of weights.
    """

    level: int
    has_map: bool
    n_in: int
    n_out: int
    triplets: int
    c_in: int
    c_out: int
    weights: int

    def moved(self, width: int) -> int:
        """Bytes of input, weights and output, each once."""
        return width * (self.n_in * self.c_in + self.n_out * self.c_out + self.weights)


@dataclass(frozen=True)
class Anatomy:
    """All that a network does on a scan.

    Args:
        points: number of points.
        channels: input channels.
        layers: convolutions in their order.
        levels: number of sites by level.
        tables: rows and slots of every kernel map.
        entries: triplets of all maps.
        head: numbers that plain linear layers read and write.
    """

    points: int
    channels: int
    layers: tuple[Layer, ...]
    levels: dict[int, int]
    tables: tuple[tuple[int, int], ...]
    entries: int
    head: int

    @property
    def mapped(self) -> list[Layer]:
        """Layers that read a kernel map."""
        return [layer for layer in self.layers if layer.has_map]

    def floors(self, device: str, dtype: torch.dtype) -> dict[str, float] | None:
        """Lower bound of every stage [ms]; ``None`` where the rates of a device are unknown."""
        bandwidth, name = known_bandwidth(device), str(dtype).removeprefix("torch.")
        width = dtype.itemsize
        if bandwidth is None or convolution_floor_ms(device, name, 0, 0) is None:
            return None
        sites = [count for _, count in sorted(self.levels.items())]
        slots = sum(rows * volume for rows, volume in self.tables)
        row = POINT + width * self.channels
        moved = {
            COPY: 2 * self.points * row,
            SORT: self.points * (POINT + INDEX) + sites[0] * KEY,
            LEVELS: sum(sites) * KEY,
            MAPS: sum(sites) * KEY + slots * INDEX,
            TILES: slots * INDEX + self.entries * INDEX,
            REDUCE: self.points * (width * self.channels + INDEX)
            + sites[0] * width * self.channels,
        }
        found = {stage: 1e3 * size / bandwidth for stage, size in moved.items()}
        for layer in self.layers:
            work = layer.triplets * layer.c_in * layer.c_out
            least = convolution_floor_ms(device, name, work, layer.moved(width))
            stage = layers_at(layer.level)
            found[stage] = found.get(stage, 0.0) + (least or 0.0)
        found[HEAD] = 1e3 * width * self.head / bandwidth
        return found


def layers_at(level: int) -> str:
    """Name of the stage of all layers whose output sites have a tensor stride."""
    return f"layers /{level}"


def anatomy(network: PlannedModule, scan: Points) -> Anatomy:
    """Sizes of all that a network does on a scan.

    Args:
        network: in evaluation mode.
        scan: in its dtype.
    """
    layers: list[Layer] = []
    maps: dict[int, KernelMap] = {}
    levels: dict[int, int] = {}
    head: dict[int, int] = {}  # of the last call: the first is not watched

    def observe(call: ObservedCall) -> None:
        layer, found, out = call.layer, call.kernel_map, call.out
        if found is not None:
            maps[id(found.edges)] = found
        for geometry in (call.x.geometry, out.geometry):
            levels[max(geometry.tensor_stride)] = geometry.rows
        sizes = call.x.geometry.rows, out.geometry.rows
        triplets = out.geometry.rows if found is None else found.triplets
        channels = layer.in_channels // layer.groups, layer.out_channels
        stride = max(out.geometry.tensor_stride)
        layers.append(
            Layer(stride, found is not None, *sizes, triplets, *channels, layer.weight.numel())
        )

    def linear(layer: nn.Linear, inputs: Sequence[Any], out: torch.Tensor) -> None:
        head[id(layer)] = inputs[0].numel() + out.numel() + layer.weight.numel()

    x = scan.on(network, backward=False)
    hooks = [
        module.register_forward_hook(linear)
        for module in network.modules()
        if isinstance(module, nn.Linear)
    ]
    try:
        run_observed(network, x, observe)
    finally:
        for hook in hooks:
            hook.remove()
    tables = tuple((found.n_out, found.volume) for found in maps.values())
    entries = sum(found.triplets for found in maps.values())
    channels = scan.features.shape[1]
    moved = sum(head.values())
    return Anatomy(len(scan.points), channels, tuple(layers), levels, tables, entries, moved)


def floors_of(found: Anatomy, gate: Gate) -> dict[str, float] | None:
    """Lower bound of every stage [ms], by the device that a gate's networks lie on."""
    device = gate.setting.where
    if device.type != "cuda":
        return None
    return found.floors(torch.cuda.get_device_name(device), gate.dtype)


def by_stage(timeline: Sequence[KernelTime], layers: Sequence[Layer]) -> dict[str, float]:
    """Device time of every stage [ms].

    Args:
        timeline: kernels of one call in their order.
        layers: convolutions of the network that read a map, in their order; where there are not as
            many products, all layers are one stage.
    """
    products = [n for n, kernel in enumerate(timeline) if PRODUCT.search(kernel.name)]
    told = len(layers) == len(products)
    order = [name for name, _ in BEGINS]
    spent: dict[str, float] = {}
    stage, number = SORT, -1
    for place, kernel in enumerate(timeline):
        if number + 1 < len(products) and place == products[number + 1]:
            number += 1
            stage = layers_at(layers[number].level) if told else "layers"
        elif products and place > products[-1] and not FINISH.search(kernel.name):
            stage = HEAD
        elif number < 0:
            begun = next((name for name, words in BEGINS if words.search(kernel.name)), stage)
            stage = begun if order.index(begun) >= order.index(stage) else stage
        copies = stage == SORT and not spent.get(SORT) and _copies(kernel.name)
        aside = next((name for name, words in BESIDE if words.search(kernel.name)), None)
        key = COPY if copies else aside or stage
        spent[key] = spent.get(key, 0.0) + kernel.microseconds / 1e3
    return spent


def _copies(name: str) -> bool:
    return name.lower().startswith(("memcpy", "copy"))
