"""Run every kernel of csrc on clouds of a few hundred rows, for `compute-sanitizer`.

    python -m tests.sanitized                # first without the tool: compiles, and checks results
    PYTORCH_NO_CUDA_MEMORY_CACHING=1 \\
        compute-sanitizer --tool memcheck --error-exitcode 9 python -m tests.sanitized

and the same with initcheck, racecheck and synccheck. Names of parts as arguments run those alone.
Without a CUDA device kernels run through the emulator. The right results are computed on the host,
so that few kernels of others run, and only what is defined is read: to initcheck a copy of
undefined memory is an error.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pcnn.geometry import Kernel, KernelMap, VoxelGrid
from pcnn.geometry.packing import DEFAULT_FORMAT
from pcnn.kernels import cuda
from pcnn.kernels.sources import FOLDER, kernels
from pcnn.maps import DoubleTraversed, HashTable, SortedSearch, Windowed, ZDelta
from pcnn.maps.device_layouts import DEVICE_LAYOUTS
from pcnn.maps.levels import extent_of, pack_cells, unique_sites
from pcnn.maps.reached_sites import reached_sites
from pcnn.models import MinkUNet42
from pcnn.ops import Planner
from pcnn.ops.sites import output_sites
from tests.clouds import surface, surface_grid
from tests.engines import KERNEL_BUILDERS
from tests.kernels.emulator import emulated_module

#: The name of a comparison, the result of a kernel, and the right one.
Compared = tuple[str, Tensor, Tensor]

ROWS = 300
KERNELS = [Kernel.of(3), Kernel.of(5), Kernel.of(2, 2), Kernel.of(3, 2), Kernel.of(3, dilation=2)]
BUILDERS = [
    *KERNEL_BUILDERS,
    DoubleTraversed(source_block=64, query_block=32),
    HashTable(search="hash", simplified=False, symmetry=False),
]
NARROW = [ZDelta(key_bits=32)]
STRIDES = [(1, 1, 1), (2, 2, 2), (3, 3, 3), (4, 2, 1), (4, 4, 4), (6, 6, 6), (8, 8, 8), (16,) * 3]


def compare(
    what: str, built: KernelMap, truth: KernelMap, tiles: bool = False
) -> Iterator[Compared]:
    """Layouts of a map as kernels write or derive them, from both sides."""
    for side, view, wanted in (
        ("", built, truth),
        (" transposed", built.transpose(), truth.transpose()),
    ):
        for name in ("by_out", "table", "masks", "pairs"):
            for one, other in zip(view.layout(name), wanted.layout(name), strict=True):
                yield f"{what}: {name}{side}", one, other
        if tiles and not (side and built.symmetric):  # mirrored lists copy what is undefined
            for name in ("tiles", "section_tiles"):
                yield from compare_tiles(
                    f"{what}: {name}{side}", view.layout(name), wanted.layout(name)
                )
    if built.has("counts"):
        yield f"{what}: counts", built.layout("counts")[0], truth.layout("counts")[0]


def compare_tiles(
    what: str, found: Sequence[Tensor], wanted: Sequence[Tensor]
) -> Iterator[Compared]:
    """The defined part of tiles."""
    out, slots, counts, rows = found
    right_out, right_slots, numbers, right_rows = wanted
    yield f"{what}: outputs", out, right_out
    yield f"{what}: counts", counts, numbers
    for tile, number in enumerate(numbers.tolist()):
        yield f"{what}: slots", slots[tile, :number], right_slots[tile, :number]
        yield f"{what}: inputs", rows[tile, :number], right_rows[tile, :number]


def build(
    builders: Sequence[object], batch_size: int, device: torch.device, tiles: bool = False
) -> Iterator[Compared]:
    grid = surface_grid(ROWS, batch_size)
    source = grid.to(device)
    for kernel in KERNELS:
        target = grid.strided(kernel)
        truth = SortedSearch().build(grid, target, kernel)
        there = source if target is grid else target.to(device)
        for builder in builders:
            built = builder.build(source, there, kernel)  # type: ignore[attr-defined]
            for each in (built, truth):  # as a geometry does that keeps maps
                each.edges.layouts["kernel_size", False] = kernel.size_layout
            yield from compare(f"{builder} {kernel}", built, truth, tiles)


def maps(device: torch.device) -> Iterator[Compared]:
    yield from build(BUILDERS, 2, device)


def narrow_maps(device: torch.device) -> Iterator[Compared]:
    yield from build(NARROW, 1, device)


def tiles(device: torch.device) -> Iterator[Compared]:
    yield from build([Windowed()], 2, device, tiles=True)


def layouts(device: torch.device) -> Iterator[Compared]:
    """Every layout from a table alone, and from pairs alone."""
    grid = surface_grid(ROWS, 2)
    for kernel in KERNELS:
        target = grid.strided(kernel)
        truth = SortedSearch().build(grid, target, kernel)
        (table,), (in_index, out_index, offsets) = truth.layout("table"), truth.layout("pairs")
        built = KernelMap.from_table(table.to(device), grid.rows, derive=DEVICE_LAYOUTS)
        yield from compare(f"from a table, {kernel}", built, truth)
        pairs = in_index.to(device), out_index.to(device), offsets
        built = KernelMap.from_pairs(*pairs, grid.rows, target.rows, derive=DEVICE_LAYOUTS)
        yield from compare(f"from pairs, {kernel}", built, truth)


def cells(clouds: int = 3) -> Tensor:
    """``[P, 4]`` int32 in any order, with duplicates."""
    batch = torch.arange(ROWS) % clouds
    return torch.cat([batch[:, None], surface(ROWS)], 1).to(torch.int32)


def levels(device: torch.device) -> Iterator[Compared]:
    coords = cells()
    keys, extent = pack_cells(coords.to(device), DEFAULT_FORMAT)
    yield "packed keys", keys, DEFAULT_FORMAT.pack(coords)
    yield "extent", extent_of(keys, DEFAULT_FORMAT), extent.cpu()
    found = unique_sites(keys, extent, STRIDES, DEFAULT_FORMAT)
    for level, stride in enumerate(STRIDES):
        step = torch.tensor((1, *stride))
        coarse = DEFAULT_FORMAT.pack(torch.div(coords, step, rounding_mode="floor") * step)
        sites, inverse = torch.unique(coarse, return_inverse=True)
        yield f"sites {stride}", found.keys[level, : len(sites)], sites
        yield f"inverse {stride}", found.inverse[level], inverse
        first = found.first[level, : len(sites)].cpu().long()
        yield f"first {stride}", inverse[first], torch.arange(len(sites))
        yield f"counts {stride}", found.counts[level : level + 1], torch.tensor([len(sites)])


def sites(device: torch.device) -> Iterator[Compared]:
    grid = surface_grid(ROWS, 2, downsampling="reached")
    source = grid.to(device)
    for kernel in (Kernel.of(3, 2), Kernel.of(2, 2), Kernel.of((5, 3, 2), (2, 3, 1))):
        wanted = grid.strided(kernel).keys
        for simplified in (True, False):
            found = reached_sites(source, kernel, simplified=simplified)
            yield f"reached sites {kernel}, simplified {simplified}", found.keys, wanted
    far = VoxelGrid(
        DEFAULT_FORMAT.pack(torch.tensor([[0, -(1 << 16), 5, 0], [1, 9, 1, 1]])), 2, 1 << 16
    )
    for grid in (surface_grid(ROWS, 2), far):  # by a bitmap, and by a sort where the box is large
        for kernel in (Kernel.of(2, 2), Kernel.of(3, (1, 3, 2))):
            found, truth = output_sites(grid.to(device), kernel), grid.strided(kernel)
            assert found.inverse is not None
            assert truth.inverse is not None
            yield f"sites {kernel}", found.keys, truth.keys
            yield f"rows above {kernel}", found.inverse, truth.inverse


def plans(device: torch.device) -> Iterator[Compared]:
    """Levels and maps of a network, from cells and from sites, with and without backward."""
    coords = cells()
    for names, backward in ((("table", "tiles"), False), (("table", "pairs"), True)):
        planner = Planner(MinkUNet42(width=0.125), names)
        grid = planner.voxelize(coords.to(device), 3, backward=backward)
        keys, inverse = torch.unique(DEFAULT_FORMAT.pack(coords), return_inverse=True)
        yield "sites of the cells", grid.keys, keys
        assert grid.inverse is not None
        yield "rows of the cells", grid.inverse, inverse
        yield from planned(grid, backward)
        yield from planned(planner(surface_grid(ROWS, 2).to(device), backward), backward)


def planned(root: VoxelGrid, backward: bool) -> Iterator[Compared]:
    grids = [root]
    for grid in grids:
        grids += grid.levels().values()
    on_host = {
        grid: VoxelGrid(grid.keys.cpu(), 3, grid.bound, grid.tensor_stride) for grid in grids
    }
    for source in grids:
        for target in grids:
            for (kernel, _), built in source.maps_to(target).items():
                truth = SortedSearch().build(on_host[source], on_host[target], kernel)
                truth.edges.layouts["kernel_size", False] = kernel.size_layout
                yield from compare(f"plan, {kernel}", built, truth, tiles=not backward)


def probe(device: torch.device) -> Iterator[Compared]:
    out = torch.empty(ROWS, dtype=torch.int32, device=device)
    cuda.module("probe.cu", device).launch("fill", 2, out=out, n=ROWS, value=7)
    yield "probe", out, torch.full((ROWS,), 7)


Part = Callable[[torch.device], Iterator[Compared]]
PARTS: dict[str, Part] = {
    part.__name__: part for part in (probe, levels, sites, maps, narrow_maps, layouts, tiles, plans)
}


@dataclass(frozen=True)
class Watched:
    """A module that notes which of its kernels ran."""

    module: cuda.Module
    source: str
    ran: set[tuple[str, str]]

    def launch(self, kernel: str, grid: int, *rest: Any, **given: Any) -> None:
        if grid:
            self.ran.add((self.source, kernel))
        self.module.launch(kernel, grid, *rest, **given)

    def threads(self, kernel: str) -> int:
        return self.module.threads(kernel)


def wrong(part: Part, device: torch.device) -> tuple[int, list[str]]:
    """How many results a part compares, and which are wrong."""
    number, bad = 0, []
    for what, found, right in part(device):
        number += 1
        if not torch.equal(found.cpu().to(torch.int64), right.to(torch.int64)):
            bad.append(what)
    return number, bad


def main(names: Sequence[str]) -> int:
    """Run parts; 1 if a result is wrong, or if a kernel of csrc never ran when all parts did."""
    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    load = cuda.LOADERS.get(device.type, emulated_module)
    ran: set[tuple[str, str]] = set()
    cuda.LOADERS[device.type] = lambda source, place, **defines: Watched(
        load(source, place, **defines), source, ran
    )
    failed = False
    for name in names or PARTS:
        start = time.perf_counter()
        number, bad = wrong(PARTS[name], device)
        print(f"{name}: {number} results, {time.perf_counter() - start:.1f} s", flush=True)
        for what in bad:
            print(f"  wrong: {what}", flush=True)
        failed |= bool(bad) or not number
    declared = {(p.name, k) for p in Path(FOLDER).glob("*.cu") for k in kernels(p.name)}
    missing = sorted(declared - ran) if not names else []
    for source, kernel in missing:
        print(f"never ran: {kernel} of {source}")
    print(f"{device}: {len(ran)} kernels, {'FAILED' if failed or missing else 'all right'}")
    return int(failed or bool(missing))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
