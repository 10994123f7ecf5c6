"""Suite ``maps``: the time to build kernel maps, by what they deliver."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import torch

from pcnn.bench.calls import same
from pcnn.bench.harness import measure
from pcnn.bench.rows import Row
from pcnn.bench.scenes import Scene
from pcnn.bench.verify import Configuration, check_map
from pcnn.geometry import Kernel, KernelMap, VoxelGrid
from pcnn.ops.engine import Engine

#: (size, stride) of the measured kernels: submanifold 3 and 5, down-sampling 2 and 3.
KERNELS = ((3, 1), (5, 1), (2, 2), (3, 2))
#: What a map delivers: the triplets; all the engine's dataflow reads forward; and backward too.
PRODUCTS = ("pairs", "ready", "train")


def bench_maps(
    scene: Scene,
    engine: Engine,
    device: torch.device,
    *,
    kernels: Sequence[tuple[int, int]] = KERNELS,
    repeats: int = 20,
) -> Iterator[Row]:
    """Check, then time, every kernel's map and every product of it.

    The sites of a strided kernel's output are part of the time.

    Raises:
        CheckFailed: the engine's triplets differ from the oracle's.
    """
    grid = scene.grid.to(device)
    for size, stride in kernels:
        kernel = Kernel.of(size, stride)
        configuration = Configuration(engine.name, scene.name, str(device), kernel)
        built = build(grid, engine, kernel, "pairs")
        proof = check_map(configuration, built, grid, grid.strided(kernel))
        for product in PRODUCTS:
            run = partial(build, grid, engine, kernel, product)
            measured = measure(same(run), device, repeats=repeats)
            proof.admit(configuration)
            yield Row(
                "map",
                scene.name,
                engine.name,
                product=product,
                n=grid.rows,
                triplets=built.triplets,
                k=size,
                stride=stride,
                checked=True,
                **measured.columns(),
            )


def build(grid: VoxelGrid, engine: Engine, kernel: Kernel, product: str) -> KernelMap:
    """Build a kernel map from nothing but the sites, and the layouts of a product."""
    bare = replace(grid, _levels={}, _maps=type(grid._maps)())
    built = engine.builder.build(bare, bare.strided(kernel), kernel)
    if product in ("ready", "train"):
        for name in engine.dataflow.needs:
            built.layout(name)
    if product == "train":
        for name in engine.dataflow.needs:
            built.transpose().layout(name)
    return built
