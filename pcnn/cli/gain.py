"""`pcnn gain`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def gain(
    runs: Annotated[list[Path], typer.Argument(help="pairs.csv of one method, one a run (seed).")],
    over: Annotated[
        list[Path], typer.Option(help="pairs.csv of the other method; once a run (seed).")
    ],
    protocol: Annotated[str, typer.Option(help="Whose rules count.")] = "predator",
    benchmark: Annotated[str, typer.Option(help="threedmatch or kitti.")] = "threedmatch",
    out: Annotated[Path | None, typer.Option(help="JSON file with the figures.")] = None,
    draws: Annotated[int, typer.Option(min=1, help="Of the bootstrap.")] = 2000,
) -> None:
    """Compare two methods pair by pair, each by one run or several seeds of the same pairs.

    Every pair counts with its mean over the runs of a method; intervals are bootstrapped over
    pairs. Numbers of samples that all tables hold are compared.
    """
    import json

    from rich.console import Console

    from pcnn.datasets.whole_file import whole_file
    from pcnn.metrics.registration import protocol as rules_of
    from pcnn.metrics.registration.comparison import compare_runs, comparison_table
    from pcnn.metrics.registration.pair_table import read_pair_table
    from pcnn.metrics.registration.pair_values import FIGURES

    try:
        rules = rules_of(protocol, benchmark)
        sides = [[read_pair_table(path) for path in paths] for paths in (runs, over)]
        samples = [
            number for number in sides[0][0] if all(number in run for runs in sides for run in runs)
        ]
        if not samples:
            raise ValueError("the tables have no number of samples in common")
        found = {
            number: compare_runs(
                [run[number] for run in sides[0]], [run[number] for run in sides[1]], rules, draws
            )
            for number in samples
        }
    except (OSError, ValueError) as error:
        raise typer.BadParameter(str(error)) from error
    title = f"{len(runs)} runs minus {len(over)} runs, protocol {rules.name}"
    Console().print(comparison_table(found, title))
    if out is None:
        return
    content = {
        "runs": [str(path) for path in runs],
        "over": [str(path) for path in over],
        "protocol": rules.name,
        "benchmark": rules.benchmark,
        "gain": {
            "all" if number is None else str(number): {
                name: {
                    "value": known(getattr(one, name).value),
                    "low": known(getattr(one, name).low),
                    "high": known(getattr(one, name).high),
                    "pairs": getattr(one, name).pairs,
                    "effect": known(effect),
                }
                for name, effect in zip(FIGURES, one.effects, strict=True)
            }
            for number, one in found.items()
        },
    }
    with whole_file(out) as file:
        file.write((json.dumps(content, indent=2, allow_nan=False) + "\n").encode())
    typer.echo(str(out))


def known(figure: float) -> float | None:
    """A figure, None where it does not exist: JSON knows no NaN."""
    return None if figure != figure else figure
