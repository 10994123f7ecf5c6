"""`pcnn bench mapping`, and what is done with its result files."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pcnn.cli.bench_options import (
    Device,
    Out,
    Repeats,
    Workloads,
    console_of_width,
    scenes_of,
    watched,
)
from pcnn.cli.device import chosen_device

if TYPE_CHECKING:
    from rich.console import Console

    from pcnn.bench.peers import Peers
    from pcnn.bench.rows import Row

#: Seconds after which rows are written while others are still measured [s].
SAVE_S = 20.0


def mapping(
    figure: Annotated[
        list[str] | None,
        typer.Option(help="Figure to measure, as spira_fig12; repeat; all unless given."),
    ] = None,
    workload: Workloads = None,
    voxel_sizes: Annotated[
        str, typer.Option(help="Voxel sizes of a scan of points in metres, as 0.2,0.1,0.05.")
    ] = "",
    builder: Annotated[
        list[str] | None, typer.Option(help="Map builder; repeat; all unless given.")
    ] = None,
    kernels: Annotated[
        str, typer.Option(help="Size:stride of the kernels of spira_fig12.")
    ] = "3:1,5:1,2:2,3:2",
    product: Annotated[
        list[str] | None,
        typer.Option(help="table, pairs, ready or train, for spira_fig12; repeat; all four."),
    ] = None,
    device: Device = "auto",
    repeats: Repeats = 20,
    runs: Annotated[int, typer.Option(min=1, help="Measure everything so many times.")] = 1,
    budget: Annotated[float, typer.Option(help="Seconds at most for one kind of time.")] = 2.0,
    cold: Annotated[bool, typer.Option(help="Flush the cache before every call.")] = False,
    inputs: Annotated[
        int, typer.Option(min=1, help="Copies of the input that calls take turns among.")
    ] = 1,
    count: Annotated[bool, typer.Option(help="Count launches and syncs (0.2 s a row).")] = True,
    ncu: Annotated[bool, typer.Option(help="L2 hits of minuet_fig16, by Nsight Compute.")] = False,
    bandwidth: Annotated[
        float | None, typer.Option(help="Of the device memory in TB/s; known for H100 and H200.")
    ] = None,
    peers: Annotated[
        Path | None, typer.Option(help="File of other engines' times to compare with.")
    ] = None,
    print_rows: Annotated[
        bool, typer.Option("--print/--no-print", help="Print all rows as tables.")
    ] = True,
    out: Out = None,
) -> None:
    """Time the building of kernel maps, figure by figure of the papers, with charts."""
    from pcnn.bench.environment import describe, short_name
    from pcnn.bench.gpu_state import read_state
    from pcnn.bench.mapping.builders import named
    from pcnn.bench.mapping.measured import Setting
    from pcnn.bench.mapping.products import PRODUCTS
    from pcnn.bench.mapping.suite import chosen_figures, draw, kept, merged, stand_ins
    from pcnn.bench.peers import read_peers
    from pcnn.bench.report import table
    from pcnn.bench.rows import write_rows
    from pcnn.ops.device_rates import known_bandwidth

    where = chosen_device(device)
    unknown = [name for name in product or () if name not in PRODUCTS]
    if unknown:
        raise typer.BadParameter(f"--product {unknown[0]}: want {', '.join(PRODUCTS)}")
    try:
        figures = chosen_figures(figure or ())
        builders = named(where, builder or ())
        theirs = read_peers(peers) if peers else None
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    before = read_state(where)
    header = describe(where)
    rate = bandwidth * 1e12 if bandwidth else known_bandwidth(header.device)
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
    console = console_of_width()
    path = out or Path("benchmarks") / "results" / f"mapping-{short_name(where)}.json"
    measured: list[Row] = []
    try:
        old = kept(path, header)
    except ValueError as error:
        raise typer.BadParameter(f"--out: {error}") from error

    def save() -> None:
        rows = merged(old, measured)
        state = {"before": before, "after": read_state(where)}
        write_rows(path, describe(where, **state, stand_ins=stand_ins(rows)), rows)

    for chosen in figures:
        first = len(measured)
        saved = time.monotonic()
        for run in range(runs):
            for row in watched(chosen.name, chosen.measure(setting, chosen.name), console):
                measured.append(replace(row, run=run) if runs > 1 else row)
                if time.monotonic() - saved > SAVE_S:  # a run cut short leaves what it has
                    save()
                    saved = time.monotonic()
        if len(measured) == first:
            console.print(f"{chosen.name}: left out, it needs {chosen.needs}")
            continue
        save()
        if print_rows:
            console.print(table(header, measured[first:]))
    if not measured:
        raise typer.BadParameter("none of these figures can be measured on this device")
    for file in (path, *draw(path)):
        console.print(f"written: {file}")
    if theirs is not None:
        _print_comparison(measured, header.device, theirs, console)
    left_out = [row for row in measured if row.params and "left_out" in row.params]
    for row in left_out:
        where_it_was = f"{row.figure} {row.workload} K={row.k} stride {row.stride} {row.product}"
        console.print(f"left out: {row.engine}, {where_it_was}: {(row.params or {})['left_out']}")
    if any("CheckFailed" in str((row.params or {})["left_out"]) for row in left_out):
        raise typer.Exit(1)


def compare(
    ours: Annotated[list[Path], typer.Argument(help="Result files; of several the least counts.")],
    peers: Annotated[Path, typer.Option(help="File of other engines' times.")],
    builder: Annotated[
        list[str] | None, typer.Option(help="Only these of our builders; repeat.")
    ] = None,
) -> None:
    """Hold measured maps against other engines' times."""
    from pcnn.bench.peers import read_peers
    from pcnn.bench.rows import read_rows

    try:
        files = [read_rows(path) for path in ours]
        theirs = read_peers(peers)
    except (OSError, ValueError) as error:
        raise typer.BadParameter(str(error)) from error
    rows = [row for _, own in files for row in own if not builder or row.engine in builder]
    devices = ", ".join(dict.fromkeys(header.device for header, _ in files))
    _print_comparison(rows, devices, theirs, console_of_width())


def join(
    paths: Annotated[list[Path], typer.Argument(help="Result files of the suite mapping.")],
    out: Annotated[Path, typer.Option(help="File to write; charts stand beside it.")],
) -> None:
    """Join result files of one device and commit, and draw their charts."""
    from pcnn.bench.mapping.suite import draw
    from pcnn.bench.mapping.suite import join as join_files

    try:
        written = join_files(paths, out)
    except (OSError, ValueError) as error:
        raise typer.BadParameter(str(error)) from error
    for file in (written, *draw(written)):
        typer.echo(f"written: {file}")


def charts(path: Annotated[Path, typer.Argument(help="Result file of the suite mapping.")]) -> None:
    """Draw the charts of a result file again."""
    from pcnn.bench.mapping.suite import draw

    try:
        drawn = draw(path)
    except (OSError, ValueError) as error:
        raise typer.BadParameter(str(error)) from error
    for file in drawn:
        typer.echo(f"written: {file}")


def _numbers(text: str) -> list[float]:
    try:
        sizes = [float(part) for part in text.split(",") if part]
    except ValueError as error:
        raise typer.BadParameter(f"--voxel-sizes {text}: want numbers, as 0.2,0.1") from error
    if any(size <= 0 for size in sizes):
        raise typer.BadParameter(f"--voxel-sizes {text}: want positive lengths [m]")
    return sizes


def _kernels(text: str) -> list[tuple[int, int]]:
    pairs = [part.split(":") for part in text.split(",")]
    if not all(len(pair) == 2 and all(p.isdecimal() and int(p) for p in pair) for pair in pairs):
        raise typer.BadParameter(f"--kernels {text}: want size:stride, as 3:1,2:2")
    return [(int(size), int(stride)) for size, stride in pairs]


def _print_comparison(rows: list[Row], device: str, peers: Peers, console: Console) -> None:
    from pcnn.bench.peers import compare as compare_with
    from pcnn.bench.peers import comparison_table

    comparisons = compare_with(rows, peers.rows)
    if comparisons:
        console.print(comparison_table(comparisons, device, peers.device))
    else:
        console.print("peers: no workload, kernel and product in common")
