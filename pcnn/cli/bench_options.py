"""What the subcommands of `pcnn bench` share: options, scenes, and the console."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pcnn.plural import counted
from pcnn.ranges import Calls, Copies, Positive

if TYPE_CHECKING:
    from pcnn.bench.peers import Peers
    from pcnn.bench.rows import Row
    from pcnn.bench.scenes import Scene
    from pcnn.console import Console
    from pcnn.ops.engine import Engine

#: Columns of a table that no terminal shows.
LOG_WIDTH = 220

Workloads = Annotated[
    list[str] | None,
    typer.Option(
        "--workload",
        help=".npz file with coords (N x 4), a scan of points, or surface_<n>k or random_<n>k; "
        "may be repeated.",
    ),
]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1, or auto.")]
Repeats = Annotated[Calls, typer.Option(help="Timed calls.")]
Out = Annotated[Path | None, typer.Option(help="Result file (JSON).")]
Runs = Annotated[Copies, typer.Option(help="How often everything is measured.")]
Budget = Annotated[
    Positive, typer.Option(help="Longest time spent on one figure of a row, in seconds.")
]
Count = Annotated[
    bool, typer.Option(help="Count launches and waits for the device (0.2 s per row).")
]
PrintRows = Annotated[bool, typer.Option("--print/--no-print", help="Print all rows as tables.")]
PeerFiles = Annotated[
    list[Path] | None,
    typer.Option("--peers", help="File of other engines' times to compare with; may be repeated."),
]
Engines = Annotated[
    list[str] | None, typer.Option("--engine", help="Engine, or 'all'; may be repeated.")
]

#: Brute force, N^2, serves tiny scenes only.
NEVER_TIMED = ("brute_force",)


def engines_of(names: list[str] | None) -> list[Engine]:
    """Engines of the option --engine; all but brute force unless given.

    Raises:
        typer.BadParameter: no engine of that name.
    """
    from pcnn.ops.engine import ENGINES, resolve

    on_voxels = (name for name, engine in ENGINES.items() if engine.serves_geometry("voxel"))
    every = [name for name in on_voxels if name not in NEVER_TIMED]
    wanted = every if not names or "all" in names else names
    try:
        return [resolve(name) for name in wanted]
    except ValueError as error:
        raise typer.BadParameter(f"--engine: {error}") from error


def peers_of(paths: list[Path] | None) -> Peers | None:
    """Rows of the files of the option --peers together, ``None`` without a file.

    Raises:
        typer.BadParameter: a file is none of peers' times.
    """
    from pcnn.bench.peers import Peers, read_peers

    try:
        files = [read_peers(path) for path in paths or ()]
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    if not files:
        return None
    return Peers(files[0].device, [row for file in files for row in file.rows])


def scenes_of(names: list[str] | None, voxel_sizes: Sequence[float] = ()) -> list[Scene]:
    """Scenes of the options --workload and --voxel-sizes.

    Raises:
        typer.BadParameter: no such file, or a file that is no workload.
    """
    from pcnn.bench.scenes import load_scenes

    try:
        return [
            scene for name in names or ["surface_20k"] for scene in load_scenes(name, voxel_sizes)
        ]
    except (FileNotFoundError, ValueError) as error:
        raise typer.BadParameter(f"--workload: {error}") from error


def console_of_width() -> Console:
    """Console of the terminal's width; of a log, wide enough for all columns."""
    from pcnn.console import Console

    console = Console()
    return console if console.is_terminal else Console(width=LOG_WIDTH)


def watched(suite: str, rows: Iterator[Row], console: Console) -> Iterator[Row]:
    """Pass rows on, with a running count on the console."""
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(f"{suite}: verifying, then timing")
        for count, row in enumerate(rows, start=1):
            progress.update(task, description=f"{suite}: {counted(count, 'row')} measured")
            yield row
