"""`pcnn gain`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pcnn.cli.app import refusing
from pcnn.escaping import say
from pcnn.ranges import Draws


def gain(
    runs: Annotated[
        list[Path], typer.Argument(help="pairs.csv of the one method, one per run (seed).")
    ],
    over: Annotated[
        list[Path], typer.Option(help="pairs.csv of the other method; once per run (seed).")
    ],
    name: Annotated[str, typer.Option(help="Name of the one method.")] = "A",
    over_name: Annotated[str, typer.Option(help="Name of the other method.")] = "B",
    protocol: Annotated[str, typer.Option(help="Protocol whose rules are applied.")] = "predator",
    benchmark: Annotated[str, typer.Option(help="threedmatch or kitti.")] = "threedmatch",
    out: Annotated[Path | None, typer.Option(help="JSON file with the figures.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Markdown file with the table.")] = None,
    chart: Annotated[
        Path | None, typer.Option(help="Picture (.png, .svg) at the first number of samples.")
    ] = None,
    draws: Annotated[Draws, typer.Option(help="Draws of the bootstrap.")] = 2000,
) -> None:
    """Compare two methods pair by pair, each by one run or several seeds of the same pairs.

    Every pair counts with its mean over the runs of a method; intervals are bootstrapped over
    pairs. RRE and RTE are compared over pairs that both methods register. Numbers of samples that
    all tables hold are compared.
    """
    import json

    from pcnn.console import Console
    from pcnn.files.whole_file import whole_file
    from pcnn.metrics.registration import compare
    from pcnn.metrics.registration import protocol as rules_of
    from pcnn.metrics.registration.comparison_report import (
        comparison_content,
        comparison_markdown,
        comparison_table,
    )
    from pcnn.metrics.registration.pair_table import read_pair_table
    from pcnn.plural import counted
    from pcnn.visualize.comparison import comparison_picture
    from pcnn.visualize.page import checked_format

    with refusing():
        if chart is not None:
            checked_format(chart)
        rules = rules_of(protocol, benchmark)
        sides = [[read_pair_table(path) for path in paths] for paths in (runs, over)]
        samples = [
            number for number in sides[0][0] if all(number in run for runs in sides for run in runs)
        ]
        if not samples:
            raise ValueError("the tables have no number of samples in common")
        found = {
            number: compare(
                [run[number] for run in sides[0]],
                [run[number] for run in sides[1]],
                rules,
                (name, over_name),
                draws,
            )
            for number in samples
        }
    title = (
        f"{name} ({counted(len(runs), 'run')}) against {over_name} ({counted(len(over), 'run')}), "
        f"protocol {rules.name}"
    )
    Console().print(comparison_table(found, title))
    if out is not None:
        content = comparison_content(found, (list(map(str, runs)), list(map(str, over))))
        with whole_file(out) as file:
            file.write((json.dumps(content, indent=2, allow_nan=False) + "\n").encode())
        say(out)
    if markdown is not None:
        with whole_file(markdown) as file:
            file.write(comparison_markdown(found, title).encode())
        say(markdown)
    if chart is not None:
        at = "all points" if samples[0] is None else f"{samples[0]} samples"
        say(comparison_picture(found[samples[0]], chart, f"{title}, {at}"))
