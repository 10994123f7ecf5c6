"""`pcnn report`: runs as one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pcnn.cli.app import refusing
from pcnn.cli.view import Open, show_page
from pcnn.escaping import say
from pcnn.plural import counted


def report(
    runs: Annotated[
        list[Path], typer.Argument(help="Folders of train.py or eval.py, or of a sweep.")
    ],
    out: Annotated[Path, typer.Option(help="The page.")] = Path("report.html"),
    views: Annotated[
        bool, typer.Option(help="Hold the interactive views of the runs, a few MB each.")
    ] = True,
    show: Open = False,
) -> None:
    """Write runs as one page: configuration, curves, figures, confusion, pictures and views.

    Several runs stand side by side, and what differs between their configurations is marked. Curves
    are those of logger=csv. The page is one file, which needs no network.
    """
    from pcnn.experiment.run_report import runs_of, write_report

    with refusing():
        found = runs_of(runs)
        write_report(out, found, views)
    for run in found:
        if not run.series and run.config.get("train"):
            say(f"{run.folder}: no curves: the run was without logger=csv")
    say(f"{out}: {counted(len(found), 'run')}, {out.stat().st_size / 1e6:.1f} MB")
    if show:
        show_page(out)
