"""One row of the suite: a product of one builder on one scene, checked, then timed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch

from pcnn.bench import oracle
from pcnn.bench.conformance import check_map_builder
from pcnn.bench.harness import DIGITS, Call, measure
from pcnn.bench.mapping.check import check_product
from pcnn.bench.mapping.products import PRODUCTS, bare, build, floor_ms
from pcnn.bench.mapping.stages import split
from pcnn.bench.rows import Row
from pcnn.bench.scenes import Scene
from pcnn.bench.trace import Trace, trace
from pcnn.bench.verify import Configuration
from pcnn.geometry import Kernel, KernelMap, VoxelGrid
from pcnn.maps import MapBuilder

#: (size, stride) of the measured kernels: submanifold 3 and 5, down-sampling 2 and 3.
KERNELS = ((3, 1), (5, 1), (2, 2), (3, 2))

Params = Mapping[str, int | float | str]


#: `timed_row` or `stage_rows`.
Measured = Callable[
    ["Setting", "Case", MapBuilder, str, str, Params | None],
    list[Row],
]


@dataclass(frozen=True)
class Setting:
    """What a run of the suite measures, and how.

    Args:
        device: where.
        scenes: growing, if they are to be drawn over their size.
        builders: those to compare.
        kernels: (size, stride) of each.
        products: names of what is delivered.
        repeats: calls that count.
        budget_s: seconds for every kind of time [s].
        cold: flush the cache before every repeat.
        inputs: copies of the keys that repeats take turns among.
        count: count launches and syncs.
        bandwidth: of the device's memory, for the floor [bytes/s].
        ncu: ask Nsight Compute for cache hits.
    """

    device: torch.device
    scenes: Sequence[Scene]
    builders: Sequence[MapBuilder]
    kernels: Sequence[tuple[int, int]] = KERNELS
    products: Sequence[str] = tuple(PRODUCTS)
    repeats: int = 20
    budget_s: float = 2.0
    cold: bool = False
    count: bool = True
    bandwidth: float | None = None
    ncu: bool = False
    inputs: int = 1

    def cases(self, kernels: Sequence[tuple[int, int]] | None = None) -> Iterator[Case]:
        """Every scene with every kernel; those of the setting unless others are given."""
        for scene in self.scenes:
            grid = scene.grid.to(self.device)
            for size, stride in self.kernels if kernels is None else kernels:
                yield Case(scene.name, grid, Kernel.of(size, stride), self.inputs)


@dataclass(frozen=True, eq=False)
class Case:
    """A scene and a kernel, with the oracle's triplets for all builders.

    Args:
        workload: name of the scene.
        grid: its voxels, on the device.
        kernel: the relation.
        inputs: copies of the keys that calls take turns among.
    """

    workload: str
    grid: VoxelGrid
    kernel: Kernel
    inputs: int = 1

    @cached_property
    def target(self) -> VoxelGrid:
        """Output sites."""
        return self.grid.strided(self.kernel)

    @cached_property
    def truth(self) -> list[oracle.Pair]:
        """Rows (j, i) of every slot."""
        return oracle.triplets(self.grid, self.target, self.kernel)

    @property
    def triplets(self) -> int:
        """Number of triplets T."""
        return sum(len(j) for j, _ in self.truth)

    def call(self, builder: MapBuilder, product: str) -> Callable[[int], Call]:
        """Calls that build from the sorted keys of the sites alone, for every repeat anew."""
        copies = [self.grid]
        copies += [replace(self.grid, keys=self.grid.keys.clone()) for _ in range(self.inputs - 1)]

        def prepared(index: int) -> Call:
            grid = bare(copies[index % len(copies)])
            return lambda: build(grid, builder, self.kernel, product)

        return prepared

    def configuration(
        self, builder: MapBuilder, product: str, params: Params | None = None
    ) -> Configuration:
        """What the check and the time of a row have in common."""
        return Configuration(
            builder.name,
            self.workload,
            str(self.grid.device),
            self.kernel,
            product=product,
            params=tuple(sorted((params or {}).items())),
        )

    def checked(self, configuration: Configuration, builder: MapBuilder) -> KernelMap:
        """Check the builder, then build a product and compare it with the oracle.

        Raises:
            CheckFailed: the builder does not pass its whole check, or a layout does not hold
                exactly the oracle's triplets.
        """
        check_map_builder(builder, self.grid.device)
        product = str(configuration.product)
        built = build(bare(self.grid), builder, self.kernel, product)
        check_product(configuration, built, self.truth).admit(configuration)
        return built


def timed_row(
    setting: Setting,
    case: Case,
    builder: MapBuilder,
    product: str,
    figure: str,
    params: Params | None = None,
) -> list[Row]:
    """Check, then time, a product of a builder.

    The sites of a strided kernel's output are part of the time.

    Returns:
        One row.

    Raises:
        CheckFailed: a layout does not hold exactly the oracle's triplets.
    """
    built = case.checked(case.configuration(builder, product, params), builder)
    floor = None
    if setting.bandwidth:
        floor = floor_ms(built, case.grid, case.target, product, setting.bandwidth)
    del built  # its memory is the builder's again
    measured = measure(
        case.call(builder, product),
        setting.device,
        repeats=setting.repeats,
        budget_s=setting.budget_s,
        cold=setting.cold,
        count=setting.count,
    )
    return [
        Row(
            "map",
            floor_ms=None if floor is None else round(floor, 6),  # often below a microsecond
            inputs=case.inputs if case.inputs > 1 else None,
            checked=True,
            **_identity(case, builder, product, figure, params),
            **measured.columns(),
        )
    ]


def stage_rows(
    setting: Setting,
    case: Case,
    builder: MapBuilder,
    product: str,
    figure: str,
    params: Params | None = None,
) -> list[Row]:
    """Check a product of a builder, then read the time of every stage off a trace.

    Returns:
        One row a stage, with ``gpu_busy_ms`` (on a CPU: time in torch's operators); none where the
        profiler does not tell.

    Raises:
        CheckFailed: a layout does not hold exactly the oracle's triplets.
    """
    case.checked(case.configuration(builder, product, params), builder)
    calls = case.call(builder, product)
    stages = split(middle_trace([trace(calls(0), setting.device) for _ in range(3)]).timeline)
    if not any(stages.values()):
        return []
    return [
        Row(
            "map",
            gpu_busy_ms=round(spent, DIGITS),
            checked=True,
            **_identity(case, builder, product, figure, {**(params or {}), "stage": stage}),
        )
        for stage, spent in stages.items()
    ]


def attempt(
    measurement: Measured,
    setting: Setting,
    case: Case,
    builder: MapBuilder,
    product: str,
    figure: str,
    params: Params | None = None,
) -> list[Row]:
    """Measure; what a builder cannot serve, or does wrongly, becomes a row that says so.

    Args:
        measurement: `timed_row` or `stage_rows`; the other arguments are its.
        setting: how to measure.
        case: scene and kernel.
        builder: finds the triplets.
        product: what is delivered.
        figure: name of the figure.
        params: settings that tell rows apart.

    Returns:
        The rows, or one row without times whose setting ``left_out`` holds the error.
    """
    try:
        return measurement(setting, case, builder, product, figure, params)
    except (ValueError, RuntimeError) as error:
        reason = f"{type(error).__name__}: {error}"
        marked = {**(params or {}), "left_out": reason}
        return [Row("map", **_identity(case, builder, product, figure, marked))]


def middle_trace(traces: Sequence[Trace]) -> Trace:
    """The trace whose device time is the median of several."""
    return sorted(traces, key=lambda seen: seen.busy_ms)[len(traces) // 2]


def _identity(
    case: Case, builder: MapBuilder, product: str, figure: str, params: Params | None
) -> dict[str, Any]:
    return {
        "workload": case.workload,
        "engine": builder.name,
        "product": product,
        "n": case.grid.rows,
        "triplets": case.triplets,
        "k": case.kernel.size[0],
        "stride": case.kernel.stride[0],
        "figure": figure,
        "params": dict(params) if params else None,
    }
