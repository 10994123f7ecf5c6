"""What the subcommands of `pcnn bench` share: options, scenes, and the console."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from pcnn.bench.rows import Row
    from pcnn.bench.scenes import Scene

#: Columns of a table that no terminal shows.
LOG_WIDTH = 220

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
    from rich.console import Console

    console = Console()
    return console if console.is_terminal else Console(width=LOG_WIDTH)


def watched(suite: str, rows: Iterator[Row], console: Console) -> Iterator[Row]:
    """Pass rows on, with a running count on the console."""
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(f"{suite}: checking, then timing")
        for count, row in enumerate(rows, start=1):
            progress.update(task, description=f"{suite}: {count} rows measured")
            yield row
