"""`pcnn bench`: measure, behind the correctness gate, into a result file."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pcnn.cli.device import chosen_device

if TYPE_CHECKING:
    import torch
    from rich.console import Console

    from pcnn.bench.peers import Peers
    from pcnn.bench.rows import Row
    from pcnn.bench.scenes import Scene
    from pcnn.ops.engine import Engine

app = typer.Typer(no_args_is_help=True, help="Time maps and layers; every time is checked first.")


#: Columns of a table that no terminal shows.
LOG_WIDTH = 220
#: Seconds after which rows are written while others are still measured [s].
SAVE_S = 20.0


class Precision(str, Enum):
    """Dtypes on offer."""

    auto = "auto"
    float16 = "float16"
    bfloat16 = "bfloat16"
    float32 = "float32"
    float64 = "float64"


Engines = Annotated[
    list[str] | None, typer.Option("--engine", help="Engine; repeat for several, or 'all'.")
]
Workloads = Annotated[
    list[str] | None,
    typer.Option(
        "--workload",
        help="File .npz with coords (N x 4), a scan of points, or surface_<n>k / random_<n>k; "
        "repeat.",
    ),
]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1, or auto.")]
Repeats = Annotated[int, typer.Option(min=3, help="Calls that count.")]
Out = Annotated[Path | None, typer.Option(help="Result file (JSON).")]


@app.command()
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
    from pcnn.bench.device_rates import known_bandwidth
    from pcnn.bench.environment import describe, short_name
    from pcnn.bench.gpu_state import read_state
    from pcnn.bench.mapping.builders import named
    from pcnn.bench.mapping.measured import Setting
    from pcnn.bench.mapping.products import PRODUCTS
    from pcnn.bench.mapping.suite import chosen_figures, draw, kept, merged, stand_ins
    from pcnn.bench.peers import read_peers
    from pcnn.bench.report import table
    from pcnn.bench.rows import write_rows

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
        _scenes(workload or ["surface_5k", "surface_20k", "surface_80k"], _numbers(voxel_sizes)),
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
    console = _console()
    path = out or Path("benchmarks") / "results" / f"mapping-{short_name(where)}.json"
    measured: list[Row] = []
    old = kept(path, header)

    def save() -> None:
        rows = merged(old, measured)
        state = {"before": before, "after": read_state(where)}
        write_rows(path, describe(where, **state, stand_ins=stand_ins(rows)), rows)

    for chosen in figures:
        first = len(measured)
        saved = time.monotonic()
        for run in range(runs):
            for row in _watched(chosen.name, chosen.measure(setting, chosen.name), console):
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


@app.command()
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
    _print_comparison(rows, devices, theirs, _console())


@app.command()
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


@app.command()
def charts(path: Annotated[Path, typer.Argument(help="Result file of the suite mapping.")]) -> None:
    """Draw the charts of a result file again."""
    from pcnn.bench.mapping.suite import draw

    try:
        drawn = draw(path)
    except (OSError, ValueError) as error:
        raise typer.BadParameter(str(error)) from error
    for file in drawn:
        typer.echo(f"written: {file}")


@app.command()
def layers(
    engine: Engines = None,
    workload: Workloads = None,
    channels: Annotated[str, typer.Option(help="Channel counts, as 16,32,64.")] = "16,32,64",
    dtype: Annotated[
        Precision, typer.Option(help="auto: float16 on a GPU, float32 on a CPU.")
    ] = Precision.auto,
    device: Device = "auto",
    repeats: Repeats = 20,
    out: Out = None,
) -> None:
    """Time single convolutions, forward and with backward."""
    import torch

    from pcnn.bench.layers import bench_layers

    where = chosen_device(device)
    name = dtype.value
    if dtype is Precision.auto:
        name = "float16" if where.type == "cuda" else "float32"
    parts = channels.split(",")
    if not all(part.isdecimal() and int(part) for part in parts):
        raise typer.BadParameter(f"--channels {channels}: want numbers, as 16,32,64")
    counts = [int(part) for part in parts]

    def rows() -> Iterator[Row]:
        for chosen in _engines(engine):
            for scene in _scenes(workload):
                yield from bench_layers(
                    scene,
                    chosen,
                    where,
                    dtype=getattr(torch, name),
                    channels=[(count, count) for count in counts],
                    repeats=repeats,
                )

    _run("layers", rows(), where, out)


def _engines(names: list[str] | None) -> list[Engine]:
    from pcnn.ops.engine import ENGINES, resolve

    # auto is one of the others, and brute force (N^2) serves tiny scenes only
    every = [name for name in ENGINES if name not in ("auto", "brute_force")]
    wanted = every if not names or "all" in names else names
    try:
        return [resolve(name) for name in wanted]
    except ValueError as error:
        raise typer.BadParameter(f"--engine: {error}") from error


def _scenes(names: list[str] | None, voxel_sizes: list[float] | None = None) -> list[Scene]:
    from pcnn.bench.scenes import load_scenes

    try:
        return [
            scene
            for name in names or ["surface_20k"]
            for scene in load_scenes(name, voxel_sizes or ())
        ]
    except (FileNotFoundError, ValueError) as error:
        raise typer.BadParameter(f"--workload: {error}") from error


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


def _run(suite: str, rows: Iterator[Row], device: torch.device, out: Path | None) -> None:
    """Measure all rows with a running count, print them, then write them whole."""
    from pcnn.bench.environment import describe, short_name
    from pcnn.bench.gpu_state import read_state
    from pcnn.bench.report import table
    from pcnn.bench.rows import write_rows

    console = _console()
    before = read_state(device)
    measured = list(_watched(suite, rows, console))
    header = describe(device, before=before, after=read_state(device))
    console.print(table(header, measured))
    path = out or Path("benchmarks") / "results" / f"{suite}-{short_name(device)}.json"
    console.print(f"written: {write_rows(path, header, measured)}")


def _console() -> Console:
    """Console of the terminal's width; of a log, wide enough for all columns."""
    from rich.console import Console

    console = Console()
    return console if console.is_terminal else Console(width=LOG_WIDTH)


def _watched(suite: str, rows: Iterator[Row], console: Console) -> Iterator[Row]:
    """Pass rows on, with a running count on the console."""
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(f"{suite}: checking, then timing")
        for count, row in enumerate(rows, start=1):
            progress.update(task, description=f"{suite}: {count} rows measured")
            yield row
