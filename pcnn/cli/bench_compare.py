"""What is done with result files: compare them with other engines' times, join them, draw them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pcnn.cli.bench_options import console_of_width, peers_of
from pcnn.escaping import say

if TYPE_CHECKING:
    from pcnn.bench.peers import Peers
    from pcnn.bench.rows import Row


def compare(
    ours: Annotated[
        list[Path], typer.Argument(help="Result files; the smallest time of each row counts.")
    ],
    peers: Annotated[
        list[Path], typer.Option(help="File of other engines' times; may be repeated.")
    ],
    builder: Annotated[
        list[str] | None,
        typer.Option(
            "--builder", "--engine", help="Only these builders and engines; may be repeated."
        ),
    ] = None,
) -> None:
    """Compare measured maps, layers and networks with other engines' times."""
    from pcnn.bench.rows import read_rows

    try:
        files = [read_rows(path) for path in ours]
    except (OSError, ValueError) as error:
        raise typer.BadParameter(str(error)) from error
    theirs = peers_of(peers)
    assert theirs is not None
    rows = [row for _, own in files for row in own if not builder or row.engine in builder]
    print_comparisons(rows, ", ".join(dict.fromkeys(h.device for h, _ in files)), theirs)


def join(
    paths: Annotated[list[Path], typer.Argument(help="Result files of one device and commit.")],
    out: Annotated[Path, typer.Option(help="File to write; charts are written beside it.")],
) -> None:
    """Join result files of one device and commit, and draw their charts."""
    from pcnn.bench.figures import FIGURES
    from pcnn.bench.suite import draw
    from pcnn.bench.suite import join as join_files

    try:
        written = join_files(paths, out, FIGURES)
    except (OSError, ValueError) as error:
        raise typer.BadParameter(str(error)) from error
    for file in (written, *draw(written, FIGURES)):
        say(f"wrote {file}")


def charts(path: Annotated[Path, typer.Argument(help="Result file.")]) -> None:
    """Draw the charts of a result file again."""
    from pcnn.bench.figures import FIGURES
    from pcnn.bench.suite import draw

    try:
        drawn = draw(path, FIGURES)
    except (OSError, ValueError) as error:
        raise typer.BadParameter(str(error)) from error
    for file in drawn:
        say(f"wrote {file}")


def print_comparisons(rows: Sequence[Row], device: str, peers: Peers) -> None:
    """Print a table for every kind of row that both sides have.

    Args:
        rows: ours.
        device: of ours.
        peers: theirs.
    """
    from pcnn.bench.best_times import comparison_table
    from pcnn.bench.peers import compare_all

    console = console_of_width()
    found = compare_all(rows, peers.rows)
    for comparer, comparisons in found:
        console.print(comparison_table(comparer, comparisons, device, peers.device))
    if not found:
        console.print("--peers: these files hold no row of the same workload and layer")
