"""`pcnn stats`: how the clouds of data sets are distributed, real against simulated."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pcnn.cli.options import Columns, MaxGib, chosen_reading
from pcnn.ranges import Count, Length

if TYPE_CHECKING:
    from pcnn.console import Console
    from pcnn.datasets.readers.channels import Reading
    from pcnn.datasets.statistics import SetStatistics


def stats(
    paths: Annotated[
        list[Path],
        typer.Argument(
            help="Data sets (folders of any layout pcnn reads), clouds, or .json files that this "
            "command wrote. The first is what the others are compared with."
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="Page to write (.png); the numbers are written beside it (.json)."),
    ] = None,
    name: Annotated[
        list[str] | None, typer.Option(help="Name of a set; once for each path, in order.")
    ] = None,
    limit: Annotated[Count, typer.Option(help="Number of clouds per set, spread over it.")] = 20,
    voxel: Annotated[
        list[Length] | None,
        typer.Option(help="Voxel size in metres; may be repeated. Default: 0.05, 0.1."),
    ] = None,
    columns: Columns = None,
    max_gib: MaxGib = None,
    progress: Annotated[bool, typer.Option(help="Show progress.")] = True,
) -> None:
    """Print statistics of data sets and draw them over one another.

    Points a cloud, histograms of range, height and remission, neighbours per voxel, distances to
    the nearest point, ring structure, missing returns, shares of classes; between two sets the
    earth mover's distances of the histograms. The .json holds numbers only, and serves as a PATH.

    Rows without a return (NaN, or zeros) count for nothing, and their number is printed. A cloud
    that cannot be read is named, the others count, and the exit code is 1.
    """
    import json

    from pcnn.console import Console
    from pcnn.datasets.readers.channels import Reading
    from pcnn.files.whole_file import whole_file
    from pcnn.plural import counted
    from pcnn.visualize.statistics import COLOURS, statistics_page

    console = Console()
    sizes = tuple(voxel or (0.05, 0.1))
    if name is not None and len(name) != len(paths):
        raise typer.BadParameter(
            f"--name is given {counted(len(name), 'time')} for {counted(len(paths), 'path')}: give "
            "it once for each path, or not at all"
        )
    if len(paths) > len(COLOURS):
        raise typer.BadParameter(
            f"{len(paths)} paths are given; a page holds at most {len(COLOURS)}"
        )
    if out is not None and out.suffix != ".png":
        raise typer.BadParameter(f"--out {out}: the name must end in .png")
    if out is not None and out.with_suffix(".json").resolve() in {p.resolve() for p in paths}:
        raise typer.BadParameter(
            f"--out {out} would replace {out.with_suffix('.json')}, which this command reads; give "
            "another name"
        )
    reading = chosen_reading(Reading(), columns, max_gib=max_gib)
    bad: list[str] = []
    try:
        names = _names(paths) if name is None else name
        sets = [
            _measure(path, called, limit, sizes, reading, bad, console, progress)
            for path, called in zip(paths, names, strict=True)
        ]
    except (OSError, ValueError, ImportError) as error:
        _print_bad(bad, console)
        raise typer.BadParameter(str(error)) from error
    _print(sets, console)
    if out is not None:
        content = sets[0].to_json()
        if len(sets) > 1:
            apart = {s.name: s.distances(sets[0]) for s in sets[1:]}
            content = {"sets": [s.to_json() for s in sets], "distances_to_first": apart}
        statistics_page(sets, out)
        with whole_file(out.with_suffix(".json")) as file:
            file.write((json.dumps(content) + "\n").encode())
        console.say(f"{out} and {out.with_suffix('.json').name}")
    _print_bad(bad, console)
    if bad:
        raise typer.Exit(1)


def _names(paths: list[Path]) -> list[str]:
    """Last parts of the paths, as many as it takes to tell them apart."""
    parts = [path.resolve().parts for path in paths]
    for depth in range(1, max(len(p) for p in parts) + 1):
        names = ["/".join(p[-depth:]) for p in parts]
        if len(set(names)) == len(names):
            return names
    raise ValueError("the same path is given twice: --name tells both apart")


def _measure(
    path: Path,
    name: str,
    limit: int,
    sizes: tuple[float, ...],
    reading: Reading,
    bad: list[str],
    console: Console,
    progress: bool,
) -> SetStatistics:
    """Measure one set, or read its numbers; unreadable clouds are added to `bad`."""
    from dataclasses import replace

    from rich.progress import track

    from pcnn.datasets.statistics import (
        cloud_statistics,
        find_clouds,
        read_cloud,
        read_statistics,
        set_statistics,
    )
    from pcnn.errors import UNREADABLE
    from pcnn.files.bounded import named
    from pcnn.files.simulated import is_simulated
    from pcnn.plural import counted

    if path.suffix == ".json":
        return replace(read_statistics(path), name=name)
    files = find_clouds(path)
    count = min(limit, len(files))
    chosen = [n * len(files) // count for n in range(count)]
    clouds, missing = [], 0
    for n in track(chosen, name, console=console, transient=True, disable=not progress):
        file = files[n].path
        try:
            with named(file, "cloud"):
                read = read_cloud(file, reading.columns, reading.max_gib)
                clouds.append(cloud_statistics(read.points, read.remission, read.classes, sizes))
        except UNREADABLE as error:
            bad.append(str(error) if str(file) in str(error) else f"{file}: {error}")
            continue
        missing += read.missing
        for note in read.notes:
            console.say(note)
    if missing:
        console.say(f"{name}: {counted(missing, 'row')} without a return (NaN or zeros) left out")
    return set_statistics(name, "simulated" if is_simulated(path) else "real", clouds)


def _print_bad(bad: list[str], console: Console) -> None:
    for line in bad:
        console.say(line, "not read", "red")


def _print(sets: list[SetStatistics], console: Console) -> None:
    from rich.table import Table

    from pcnn.visualize.statistics import table_rows, title

    table = Table()
    table.add_column("")
    for statistics in sets:
        table.add_column(title(statistics), justify="right")
    for row, values in table_rows(sets):
        table.add_row(row, *values)
    names = {name for s in sets for name in s.classes or {}}
    order = sorted(names, key=lambda n: -max((s.classes or {}).get(n, 0.0) for s in sets))
    table.add_section()
    for name in order:
        shares = [(s.classes or {}).get(name) for s in sets]
        values = ["-" if share is None else f"{share:.2%}" for share in shares]
        table.add_row(name, *values)
    console.print(table)
