"""`pcnn bench mapping`."""

from __future__ import annotations

from typing import Annotated

import typer

from pcnn.cli.bench_compare import print_comparisons
from pcnn.cli.bench_options import (
    Budget,
    Count,
    Device,
    Out,
    PeerFiles,
    PrintRows,
    Repeats,
    Runs,
    Workloads,
    peers_of,
    scenes_of,
)
from pcnn.cli.bench_run import Run, stop_if_wrong
from pcnn.cli.device import chosen_device
from pcnn.ranges import Copies, Positive


def mapping(
    figure: Annotated[
        list[str] | None,
        typer.Option(help="Figure to measure, such as spira_fig12; may be repeated. Default: all."),
    ] = None,
    workload: Workloads = None,
    voxel_sizes: Annotated[
        str, typer.Option(help="Voxel sizes of a scan of points in metres, such as 0.2,0.1,0.05.")
    ] = "",
    builder: Annotated[
        list[str] | None, typer.Option(help="Map builder; may be repeated. Default: all.")
    ] = None,
    kernels: Annotated[
        str, typer.Option(help="Kernels of spira_fig12, as size:stride.")
    ] = "3:1,5:1,2:2,3:2",
    product: Annotated[
        list[str] | None,
        typer.Option(
            help="table, pairs, ready or train, of spira_fig12; may be repeated. Default: all."
        ),
    ] = None,
    device: Device = "auto",
    repeats: Repeats = 20,
    runs: Runs = 1,
    budget: Budget = 2.0,
    cold: Annotated[bool, typer.Option(help="Flush the cache before every call.")] = False,
    inputs: Annotated[
        Copies, typer.Option(help="Copies of the input that the calls take in turn.")
    ] = 1,
    count: Count = True,
    ncu: Annotated[
        bool, typer.Option(help="Count L2 hits of minuet_fig16 by Nsight Compute.")
    ] = False,
    bandwidth: Annotated[
        Positive | None,
        typer.Option(help="Bandwidth of the device memory in TB/s; known for H100 and H200."),
    ] = None,
    peers: PeerFiles = None,
    print_rows: PrintRows = True,
    out: Out = None,
) -> None:
    """Time the building of kernel maps, figure by figure of the papers, with charts."""
    from pcnn.bench.environment import describe
    from pcnn.bench.mapping.builders import named
    from pcnn.bench.mapping.figures import FIGURES
    from pcnn.bench.mapping.measured import Setting
    from pcnn.bench.mapping.products import PRODUCTS
    from pcnn.bench.suite import chosen_figures
    from pcnn.ops.device_rates import known_bandwidth

    where = chosen_device(device)
    unknown = [name for name in product or () if name not in PRODUCTS]
    if unknown:
        raise typer.BadParameter(f"--product {unknown[0]}: must be one of {', '.join(PRODUCTS)}")
    try:
        figures = chosen_figures(figure or (), FIGURES)
        builders = named(where, builder or ())
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    theirs = peers_of(peers)
    rate = bandwidth * 1e12 if bandwidth else known_bandwidth(describe(where).device)
    setting = Setting(
        where,
        scenes_of(workload or ["surface_5k", "surface_20k", "surface_80k"], _numbers(voxel_sizes)),
        builders,
        _kernels(kernels),
        product or tuple(PRODUCTS),
        repeats,
        budget,
        cold,
        count,
        rate,
        ncu,
        inputs,
    )
    run = Run("mapping", FIGURES, figures, where, out, print_rows, runs)
    header, measured = run.measure(setting)
    if theirs is not None:
        print_comparisons(measured, header.device, theirs)
    stop_if_wrong(measured)


def _numbers(text: str) -> list[float]:
    try:
        sizes = [float(part) for part in text.split(",") if part]
    except ValueError as error:
        raise typer.BadParameter(
            f"--voxel-sizes {text}: must be numbers, such as 0.2,0.1"
        ) from error
    if not all(0 < size <= 1e6 for size in sizes):
        raise typer.BadParameter(f"--voxel-sizes {text}: lengths must be above 0 m")
    return sizes


def _kernels(text: str) -> list[tuple[int, int]]:
    from pcnn.bench.layers.setting import MOST_SIZE

    pairs = [part.split(":") for part in text.split(",")]
    if not all(
        len(pair) == 2 and all(p.isdecimal() and 0 < int(p) <= MOST_SIZE for p in pair)
        for pair in pairs
    ):
        raise typer.BadParameter(
            f"--kernels {text}: must be size:stride, each from 1 to {MOST_SIZE}, such as 3:1,2:2"
        )
    return [(int(size), int(stride)) for size, stride in pairs]
