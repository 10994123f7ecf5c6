"""`pcnn report`: runs as one page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pcnn.cli.app import ARGUMENT, refusing
from pcnn.cli.options import Open
from pcnn.cli.view import show_page
from pcnn.messages import counted, say


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """Options of `pcnn report`."""

    runs: Annotated[list[Path], ARGUMENT, "Folders of pcnn train or eval, or of a sweep."]
    out: Annotated[Path, "The page."] = Path("report.html")
    show: Open = False


def report(options: ReportOptions) -> None:
    """Write runs as one page: what they are, figures, curves, confusion, pictures, configuration.

    Several runs stand side by side, with what differs between their configurations. Curves are
    those of logger=csv. The page is one file, which needs no network.
    """
    from pcnn.experiment.run_report import runs_of, write_report

    with refusing():
        found = runs_of(options.runs)
        write_report(options.out, found)
    for run in found:
        if not run.series and run.config.get("train"):
            say(f"{run.folder}: no curves: the run was without logger=csv")
    say(f"{options.out}: {counted(len(found), 'run')}, {options.out.stat().st_size / 1e6:.1f} MB")
    if options.show:
        show_page(options.out)
