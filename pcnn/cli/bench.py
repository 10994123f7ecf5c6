"""`pcnn bench`: results are verified, then timed, into a result file.

Options of a suite are the fields of its setting (`pcnn.bench.setting`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

import typer

from pcnn.bench.setting import Setting
from pcnn.cli.app import App
from pcnn.cli.bench_data import data
from pcnn.cli.bench_papers import claims, papers
from pcnn.cli.bench_run import (
    compile_sources,
    console_of_width,
    in_turns,
    measure,
    stop_if_wrong,
)
from pcnn.cli.bench_solvers import solvers
from pcnn.cli.bench_step import step
from pcnn.cli.suites import SUITES, figures_of
from pcnn.escaping import say

if TYPE_CHECKING:
    from pcnn.bench.peers import Peers
    from pcnn.bench.rows import Row


def suite(name: str) -> Callable[..., None]:
    """The command of a suite, with an option for every field of its setting."""
    kind, about, plain = SUITES[name]

    def command(**words: Any) -> None:
        _run(name, kind(**words), plain)

    hints = get_type_hints(kind, include_extras=True)
    shared = {one.name for one in fields(Setting)}
    parameters = []
    for one in sorted(fields(kind), key=lambda one: one.name in shared):
        kept, (*names, about_it) = _parted(hints[one.name])
        hint = Annotated[kept, typer.Option(*names, help=about_it)]  # type: ignore[valid-type]
        how: Any = {"kind": inspect.Parameter.KEYWORD_ONLY, "default": one.default}
        parameters.append(inspect.Parameter(one.name, annotation=hint, **how))
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    command.__name__, command.__doc__ = name, about
    return command


def _parted(hint: Any) -> tuple[Any, list[str]]:
    """A hint without the words in it, and these: how an option is typed, and its help."""
    kind, *others = get_args(hint)
    for limit in others:
        kind = kind if isinstance(limit, str) else Annotated[kind, limit]
    return kind, [other for other in others if isinstance(other, str)]


def _run(name: str, setting: Setting, plain: Sequence[str]) -> None:
    from pcnn.bench.best_times import comparison_table
    from pcnn.bench.peers import SAME_SIZE, same_size
    from pcnn.bench.suite import chosen_figures
    from pcnn.cli.options import chosen_device

    figures = figures_of(name)
    setting = setting.having(where=chosen_device(setting.device))
    try:
        chosen = chosen_figures(getattr(setting, "figure", None) or plain, figures)
        setting.resolve()
    except (FileNotFoundError, ValueError) as error:
        raise typer.BadParameter(str(error)) from error
    theirs = setting.theirs.rows if setting.theirs else ()
    compile_sources(setting.where)
    with in_turns(setting.turns):
        header, measured = measure(name, figures, chosen, setting, theirs)
    if setting.theirs is not None:
        print_comparisons(measured, header.device, setting.theirs)
    ratios = same_size(measured)
    if ratios:
        table = comparison_table(SAME_SIZE, ratios, header.device, header.device)
        console_of_width().print(table)
    stop_if_wrong(measured)


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
        theirs = Setting(peers=peers).theirs
    except (OSError, ValueError) as error:
        raise typer.BadParameter(str(error)) from error
    assert theirs is not None
    rows = [row for _, own in files for row in own if not builder or row.engine in builder]
    print_comparisons(rows, ", ".join(dict.fromkeys(h.device for h, _ in files)), theirs)


def join(
    paths: Annotated[list[Path], typer.Argument(help="Result files of one device and commit.")],
    out: Annotated[Path, typer.Option(help="File to write; charts are written beside it.")],
) -> None:
    """Join result files of one device and commit, and draw their charts."""
    from pcnn.bench.suite import join as join_files

    try:
        written = join_files(paths, out, figures_of())
    except (OSError, ValueError) as error:
        raise typer.BadParameter(str(error)) from error
    say(f"wrote {written}")
    charts(written)


def charts(
    path: Annotated[Path, typer.Argument(help="Result file.")],
    peers: Annotated[
        list[Path] | None,
        typer.Option(help="File of other engines' times to draw too; may be repeated."),
    ] = None,
) -> None:
    """Draw the charts of a result file again."""
    from pcnn.bench.suite import draw

    try:
        theirs = Setting(peers=peers).theirs
        drawn = draw(path, figures_of(), theirs.rows if theirs else ())
    except (OSError, ValueError) as error:
        raise typer.BadParameter(str(error)) from error
    for file in drawn:
        say(f"wrote {file}")


def print_comparisons(rows: Sequence[Row], device: str, peers: Peers) -> None:
    """Print a table for every kind of row that both sides have."""
    from pcnn.bench.best_times import comparison_table
    from pcnn.bench.peers import compare_all

    console = console_of_width()
    found = compare_all(rows, peers.rows)
    for comparer, comparisons in found:
        console.print(comparison_table(comparer, comparisons, device, peers.device))
    if not found:
        console.print("--peers: these files hold no row of the same workload and layer")


app = App(help="Time maps, layers and networks, after a check that their results are right.")
COMMANDS: tuple[Callable[..., None], ...] = (
    *map(suite, SUITES),
    data,
    step,
    solvers,
    papers,
    claims,
    join,
    charts,
    compare,
)
for command in COMMANDS:
    app.command()(command)
