"""Running the figures of a suite: measure, save, print and draw."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from pcnn.plural import counted

if TYPE_CHECKING:
    import torch

    from pcnn.bench.charts import PeerRows
    from pcnn.bench.rows import Header, Row
    from pcnn.bench.suite import Figure
    from pcnn.console import Console

#: Columns of a table in a log.
LOG_WIDTH = 220
#: Seconds after which rows are written while others are still measured [s].
SAVE_S = 20.0


def measure(
    suite: str,
    figures: Sequence[Figure[Any]],
    chosen: Sequence[Figure[Any]],
    setting: Any,
    peers: PeerRows = (),
) -> tuple[Header, list[Row]]:
    """Measure figures, adding to a result file of the same device, torch and commit.

    Args:
        suite: names the result file.
        figures: of the suite.
        chosen: those that are measured.
        setting: of the suite.
        peers: other engines' times, for the charts that show them.

    Raises:
        typer.BadParameter: ``out`` is something else than a result file, or nothing could be
            measured here.
    """
    from pcnn.bench.environment import describe, read_state, short_name
    from pcnn.bench.report import table
    from pcnn.bench.rows import write_rows
    from pcnn.bench.suite import draw, kept, merged, stand_ins

    console, device = console_of_width(), setting.where
    before = read_state(device)
    header = describe(device)
    name = f"{suite}-{short_name(device)}.json"
    path = setting.out or Path("benchmarks") / "results" / name
    measured: list[Row] = []
    try:
        old = kept(path, header)
    except ValueError as error:
        raise typer.BadParameter(f"--out: {error}") from error

    def save() -> None:
        rows = merged(old, measured)
        state = {"before": before, "after": read_state(device)}
        write_rows(path, describe(device, **state, stand_ins=stand_ins(rows, figures)), rows)

    for figure in chosen:
        first, saved = len(measured), time.monotonic()
        try:
            for row in _watched(figure.name, figure.measure(setting, figure.name), console):
                measured.append(row)
                if time.monotonic() - saved > SAVE_S:  # a run cut short leaves what it has
                    save()
                    saved = time.monotonic()
        finally:  # Ctrl-C too
            if len(measured) > first:
                save()
        if len(measured) == first:
            console.print(f"{figure.name}: not measured here; it needs {figure.needs}")
            continue
        if setting.print_rows:
            console.print(table(header, measured[first:]))
    if not measured:
        raise typer.BadParameter("none of these figures can be measured on this device")
    for file in (path, *draw(path, figures, peers)):
        console.print(f"wrote {file}")
    return header, measured


@contextlib.contextmanager
def in_turns(file: Path | None) -> Iterator[None]:
    """Measure in turns with other processes; see `pcnn.bench.turns.taking_turns`.

    Raises:
        typer.BadParameter: the file cannot be opened.
    """
    from pcnn.bench.turns import taking_turns

    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(taking_turns(file))
        except OSError as error:
            raise typer.BadParameter(f"--turns: {error}") from error
        yield


def compile_sources(where: torch.device) -> None:
    """Compile the CUDA sources that are not in the cache side by side, before anything is timed."""
    if where.type != "cuda":
        return
    import torch

    from pcnn.kernels.compiler import architecture
    from pcnn.kernels.sources_ahead import compile_sources_ahead, missing_sources

    capability = torch.cuda.get_device_capability(where)
    if missing_sources(architecture(capability)):
        compile_sources_ahead(capability).wait()


def stop_if_wrong(measured: Sequence[Row]) -> None:
    """Name what was left out, and exit with an error where a result was wrong."""
    from pcnn.bench.rows import described

    console = console_of_width()
    reasons = []
    for row in measured:
        reason = (row.params or {}).get("left_out")
        if reason is not None:
            console.print(f"not timed: {described(row)}: {reason}")
            reasons.append(str(reason))
    if any("CheckFailed" in reason for reason in reasons):
        raise typer.Exit(1)


def console_of_width() -> Console:
    """Console of the terminal's width; of a log, wide enough for all columns."""
    from pcnn.console import Console

    console = Console()
    return console if console.is_terminal else Console(width=LOG_WIDTH)


def _watched(suite: str, rows: Iterator[Row], console: Console) -> Iterator[Row]:
    """Pass rows on, with a running count on the console."""
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(f"{suite}: verifying, then timing")
        for count, row in enumerate(rows, start=1):
            progress.update(task, description=f"{suite}: {counted(count, 'row')} measured")
            yield row
