"""`pcnn bench papers` and `claims`: the papers' figures measured, and the page about them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pcnn.bench.setting import TURNS_HELP, Precision
from pcnn.cli.bench_run import (
    compile_sources,
    console_of_width,
    in_turns,
    measure,
    stop_if_wrong,
)
from pcnn.cli.options import Device
from pcnn.escaping import say
from pcnn.plural import counted
from pcnn.ranges import Calls, Count, Rooms

if TYPE_CHECKING:
    from pcnn.bench.papers.plan import Job
    from pcnn.bench.rows import Row
    from pcnn.bench.setting import Setting

#: Folder of result files of a checkout.
RESULTS = Path("benchmarks") / "results"


def papers(
    paper: Annotated[
        list[str] | None,
        typer.Option(
            help="torchsparse, minuet, spira or pointcnnpp; may be repeated. Default: all."
        ),
    ] = None,
    figure: Annotated[
        list[str] | None,
        typer.Option(help="Figure, such as spira_fig8; may be repeated. Default: all."),
    ] = None,
    workload: Annotated[
        list[str] | None, typer.Option(help="Voxels, as the suites take them; may be repeated.")
    ] = None,
    cloud: Annotated[
        list[str] | None, typer.Option(help="Points, as `native` takes them; may be repeated.")
    ] = None,
    dtype: Annotated[
        list[Precision] | None,
        typer.Option(
            help="May be repeated. Default: float16, of end-to-end figures tf32 and float32 too."
        ),
    ] = None,
    engine: Annotated[
        list[str] | None, typer.Option(help="Engine, or 'all'; may be repeated. Default: all.")
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option(help="Network, where figures do not name their own; repeat.")
    ] = None,
    line: Annotated[
        list[str] | None, typer.Option(help="Line of figures on native points; repeat.")
    ] = None,
    limit: Annotated[
        float, typer.Option(min=0, help="Seconds after which nothing more begins.")
    ] = 3600.0,
    repeats: Annotated[Calls | None, typer.Option(help="Timed calls.")] = None,
    budget: Annotated[
        float | None,
        typer.Option(min=0, help="Longest time spent on one figure of a row, in seconds."),
    ] = None,
    check_voxels: Annotated[
        Count | None, typer.Option(help="Networks are verified on this many voxels.")
    ] = None,
    sizes: Annotated[
        str | None, typer.Option(help="Sizes of generated scenes and rooms, in thousands.")
    ] = None,
    rooms: Annotated[Rooms | None, typer.Option(help="Simulated rooms.")] = None,
    memory: Annotated[
        float | None, typer.Option(min=0, help="Memory that pointcnnpp_figJ may use, in GB.")
    ] = None,
    peers: Annotated[
        list[Path] | None, typer.Option(help="File of other engines' times, for the charts.")
    ] = None,
    turns: Annotated[Path | None, typer.Option(help=TURNS_HELP)] = None,
    device: Device = "auto",
    out: Annotated[Path | None, typer.Option(help="Folder of the result files.")] = None,
) -> None:
    """Measure every figure and table of the papers that one kind of GPU can show.

    Every figure is a result file of its own with its charts beside it. A figure that is whole is
    not measured again; one that was cut short lies in `unfinished` until it is. `--limit 0` tells
    what there is to do.
    """
    from pcnn.bench.environment import describe, short_name
    from pcnn.bench.papers.plan import jobs
    from pcnn.cli.options import chosen_device
    from pcnn.cli.suites import SUITES, figures_of

    began, where = time.monotonic(), chosen_device(device)
    suites = {name: (kind, figures_of(name)) for name, (kind, *_) in SUITES.items()}
    dtypes = [one.value for one in dtype or ()]
    given: dict[str, Any] = {
        "workload": workload,
        "cloud": cloud,
        "engine": engine,
        "model": model,
        "line": line,
        "rooms": rooms,
        "memory": memory,
        "repeats": repeats,
        "budget": budget,
        "check_voxels": check_voxels,
        "sizes": sizes,
        "peers": peers,
        "turns": turns,
        "count": False,
        "print_rows": False,
    }
    folder = out or RESULTS / f"papers-{short_name(where)}"
    try:
        todo = jobs(suites, paper or (), figure or (), dtypes, where.type == "cuda")
        settings = [_setting(suites[job.suite][0], job, given, where) for job in todo]
        header = describe(where)
        whole = [job.is_whole(folder, header) for job in todo]
    except (FileNotFoundError, ValueError) as error:
        raise typer.BadParameter(str(error)) from error
    left = [(j, s) for j, s, done in zip(todo, settings, whole, strict=True) if not done]
    say(f"{counted(len(todo), 'figure')}, {len(todo) - len(left)} whole already, in {folder}")
    if left and limit:
        compile_sources(where)
    measured = _measure(left, folder, limit, began)
    stop_if_wrong(measured)


def _setting(kind: type[Setting], job: Job, given: dict[str, Any], where: Any) -> Setting:
    """The suite's setting for a job; of the options those that it has."""
    known = {one.name for one in fields(kind)}
    words = {name: one for name, one in given.items() if name in known and one is not None}
    if job.dtype is not None:
        words["dtype"] = Precision(job.dtype)
    setting = kind(**words).having(where=where)
    setting.resolve()
    return setting


def _measure(
    left: Sequence[tuple[Job, Setting]], folder: Path, limit: float, began: float
) -> list[Row]:
    """Measure jobs one after another until the time is over; their rows."""
    from pcnn.bench.papers.plan import UNFINISHED, was_cut

    console, measured = console_of_width(), list[Any]()
    for number, (job, setting) in enumerate(left, 1):
        spent = time.monotonic() - began
        about = f"[{number} of {len(left)}] {job.name}"
        if spent >= limit:
            console.print(f"{about} and all after it: {limit:g} s are over", markup=False)
            break
        console.print(f"{about}: {spent:.0f} of {limit:g} s", markup=False)
        file = job.file(folder / UNFINISHED)
        chosen = job.within(limit - spent)
        own = setting.having(out=file)
        theirs = own.theirs.rows if own.theirs else ()
        try:
            with in_turns(own.turns):
                _, rows = measure(job.suite, [chosen], [chosen], own, theirs)
        except typer.BadParameter as error:
            console.print(f"{about}: {error}", markup=False)
            continue
        measured += rows
        if not was_cut(rows):
            _whole(file, folder)
            console.print(f"{about}: whole, in {folder}", markup=False)
    return measured


def _whole(file: Path, folder: Path) -> None:
    """Move a figure that is whole, and its charts, out of the folder of unfinished ones."""
    for one in (*file.parent.glob(f"{file.stem}-*.png"), file):
        one.replace(folder / one.name)
    if not any(file.parent.iterdir()):
        file.parent.rmdir()


def claims(
    results: Annotated[Path, typer.Option(help="Folder of result files.")] = RESULTS,
    out: Annotated[Path, typer.Option(help="Page to write.")] = Path("docs/results/papers.md"),
) -> None:
    """Write the page that holds the papers' claims beside our result files. Nothing is measured."""
    from pcnn.bench.papers.page import page

    if not results.is_dir():
        raise typer.BadParameter(f"--results {results}: no such folder")
    out.write_text(page(results))
    say(f"wrote {out}")
