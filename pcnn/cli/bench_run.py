"""Running the figures of a suite: measure, save, print and draw."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from pcnn.cli.bench_options import console_of_width, watched

if TYPE_CHECKING:
    import torch

    from pcnn.bench.rows import Header, Row
    from pcnn.bench.suite import Figure

#: Seconds after which rows are written while others are still measured [s].
SAVE_S = 20.0


@dataclass(frozen=True)
class Run:
    """A run of a suite.

    Args:
        suite: name of the suite, and of its result file.
        figures: all that the suite knows.
        chosen: those to measure.
        device: where.
        out: result file; ``None``: in ``benchmarks/results``, named after suite and device.
        print_rows: whether to print all rows as tables.
        runs: times that every figure is measured from the start.
    """

    suite: str
    figures: Sequence[Figure[Any]]
    chosen: Sequence[Figure[Any]]
    device: torch.device
    out: Path | None
    print_rows: bool = True
    runs: int = 1

    def measure(self, setting: Any) -> tuple[Header, list[Row]]:
        """Measure the chosen figures, adding to a file of the same device, torch and commit.

        Raises:
            typer.BadParameter: ``out`` is something else than a result file, or nothing could be
                measured here.
        """
        from pcnn.bench.environment import describe, read_state, short_name
        from pcnn.bench.report import table
        from pcnn.bench.rows import write_rows
        from pcnn.bench.suite import draw, kept, merged, stand_ins

        console = console_of_width()
        before = read_state(self.device)
        header = describe(self.device)
        name = f"{self.suite}-{short_name(self.device)}.json"
        path = self.out or Path("benchmarks") / "results" / name
        measured: list[Row] = []
        try:
            old = kept(path, header)
        except ValueError as error:
            raise typer.BadParameter(f"--out: {error}") from error

        def save() -> None:
            rows = merged(old, measured)
            state = {"before": before, "after": read_state(self.device)}
            stood_in = stand_ins(rows, self.figures)
            write_rows(path, describe(self.device, **state, stand_ins=stood_in), rows)

        for figure in self.chosen:
            first = len(measured)
            saved = time.monotonic()
            for run in range(self.runs):
                for row in watched(figure.name, figure.measure(setting, figure.name), console):
                    measured.append(replace(row, run=run) if self.runs > 1 else row)
                    if time.monotonic() - saved > SAVE_S:  # a run cut short leaves what it has
                        save()
                        saved = time.monotonic()
            if len(measured) == first:
                console.print(f"{figure.name}: not measured here; it needs {figure.needs}")
                continue
            save()
            if self.print_rows:
                console.print(table(header, measured[first:]))
        if not measured:
            raise typer.BadParameter("none of these figures can be measured on this device")
        for file in (path, *draw(path, self.figures)):
            console.print(f"wrote {file}")
        return header, measured


def stop_if_wrong(measured: Sequence[Row]) -> None:
    """Name what was left out, and exit with an error where a result was wrong."""
    console = console_of_width()
    left_out = [row for row in measured if row.params and "left_out" in row.params]
    for row in left_out:
        words = (row.figure, row.what, row.workload, row.model, row.product, row.dtype)
        layer = "" if row.c_in is None else f" {row.c_in}->{row.c_out}"
        where = " ".join(str(word) for word in words if word)
        kernel = "" if row.k is None else f" K={row.k} stride {row.stride}"
        reason = (row.params or {})["left_out"]
        console.print(f"not timed: {row.engine}, {where}{layer}{kernel}: {reason}")
    if any("CheckFailed" in str((row.params or {})["left_out"]) for row in left_out):
        raise typer.Exit(1)
