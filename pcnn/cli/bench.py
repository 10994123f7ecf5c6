"""`pcnn bench`: measure, behind the correctness gate, into a result file."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pcnn.cli.bench_mapping import charts, compare, join, mapping
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
    import torch

    from pcnn.bench.rows import Row
    from pcnn.ops.engine import Engine

app = typer.Typer(no_args_is_help=True, help="Time maps and layers; every time is checked first.")
for command in (mapping, join, charts, compare):
    app.command()(command)

Engines = Annotated[
    list[str] | None, typer.Option("--engine", help="Engine; repeat for several, or 'all'.")
]


class Precision(str, Enum):
    """Dtypes on offer."""

    auto = "auto"
    float16 = "float16"
    bfloat16 = "bfloat16"
    float32 = "float32"
    float64 = "float64"


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
            for scene in scenes_of(workload):
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


def _run(suite: str, rows: Iterator[Row], device: torch.device, out: Path | None) -> None:
    """Measure all rows with a running count, print them, then write them whole."""
    from pcnn.bench.environment import describe, short_name
    from pcnn.bench.gpu_state import read_state
    from pcnn.bench.report import table
    from pcnn.bench.rows import write_rows

    console = console_of_width()
    before = read_state(device)
    measured = list(watched(suite, rows, console))
    header = describe(device, before=before, after=read_state(device))
    console.print(table(header, measured))
    path = out or Path("benchmarks") / "results" / f"{suite}-{short_name(device)}.json"
    console.print(f"written: {write_rows(path, header, measured)}")
