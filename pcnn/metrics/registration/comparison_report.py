"""A comparison of two methods as a table of the terminal, as Markdown and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isnan, nan
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.table import Table

from pcnn.console import plain
from pcnn.metrics.registration.bootstrap import Figure
from pcnn.metrics.registration.comparison import ERRORS, FIGURES, Comparison
from pcnn.metrics.registration.table import averaged_over
from pcnn.plural import counted

#: Heading, factor and digits of every figure.
SHOWN = {
    "rr": ("RR %", 100, 1),
    "fmr": ("FMR %", 100, 1),
    "ir": ("IR %", 100, 2),
    "rre": ("RRE deg", 1, 3),
    "rte": ("RTE m", 1, 4),
}
NONE = "-"
#: Columns that a terminal never folds.
SHORT = ("samples", "difference", "d", "pairs")

#: By number of samples; None when all points were used.
Comparisons = Mapping[int | None, Comparison]


def shown(samples: int | None) -> str:
    """A number of samples as a name."""
    return "all" if samples is None else str(samples)


def spread(values: Iterable[float]) -> tuple[float, float]:
    """Mean and standard deviation ``sqrt(sum (x - mean)² / (S - 1))`` of values that exist."""
    known = [value for value in values if not isnan(value)]
    mean = float(np.mean(known)) if known else nan
    return mean, float(np.std(known, ddof=1)) if len(known) > 1 else nan


def headings(comparison: Comparison) -> list[str]:
    """Of the columns of `rows`."""
    return ["samples", "figure", *comparison.names, "difference", "95 %", "d", "pairs"]


def rows(samples: int | None, comparison: Comparison) -> list[list[str]]:
    """Rows of one number of samples, as text under the `headings`.

    RR, FMR and IR stand with their mean and standard deviation over runs and their difference. RRE
    and RTE have three rows: mean and median over the pairs that both register, of which the first
    has the difference, and each method's own mean and deviation over runs.
    """
    found = []
    for name in FIGURES:
        heading, unit, digits = SHOWN[name]
        one = comparison.figures[name]
        own = [_spread(values, unit, digits) for values in one.runs]
        difference = [
            number(one.difference.value, unit, digits, "+"),
            _interval(one.difference, unit, digits),
            number(one.effect, 1, 2, "+"),
            str(one.difference.pairs),
        ]
        if name not in ERRORS:
            found.append([f"{heading} ↑", *own, *difference])
            continue
        means, medians = (
            [number(value, unit, digits) for value in values] for values in (one.means, one.medians)
        )
        both = f"{heading} ↓, both register"
        found.append([both, *means, *difference])
        found.append([f"{both}, median", *medians, "", "", "", difference[-1]])
        found.append([f"{heading} ↓, own pairs", *own, "", "", "", ""])
    return [[shown(samples), *cells] for cells in found]


def notes(comparisons: Comparisons) -> list[str]:
    """Sentences on what the figures rest on."""
    first = next(iter(comparisons.values()))
    rule, (one, other) = first.protocol, first.names
    runs = [len(values) for values in first.figures["rr"].runs]
    said = [
        f"Protocol {rule.name} of {rule.benchmark}: registered if {rule.success}; means over "
        f"{rule.average}.",
        f"{one}: {counted(runs[0], 'run')}, {other}: {counted(runs[1], 'run')}; "
        "mean ± standard deviation over runs"
        + (" (none over a single run)." if 1 in runs else "."),
        f"Difference: {one} minus {other} over pairs, each with its mean over a method's runs; "
        "95 % by bootstrap over pairs; d is Cohen's of the paired differences.",
        "'both register': pairs that each method registers in one run or more, each error the mean "
        f"over those runs; 'own pairs': {averaged_over(rule.errors_over)} of each run by itself, "
        "which are not the same pairs.",
    ]
    if not all(comparison.figures["ir"].which.all() for comparison in comparisons.values()):
        said.append(
            "Pairs without matches: a method's FMR and IR leave its own out; the difference of FMR "
            "counts them as too few right matches, that of IR is over pairs where both have some."
        )
    empty = [
        shown(samples)
        for samples, comparison in comparisons.items()
        if comparison.figures["rre"].difference.pairs == 0
    ]
    if empty:
        said.append(
            f"No pair is registered by both methods at samples {', '.join(empty)}: RRE and RTE "
            "cannot be compared."
        )
    return said


def comparison_table(comparisons: Comparisons, title: str) -> Table:
    """The table of the terminal."""
    table = Table(
        title=plain(title),
        title_justify="left",
        caption=plain("\n".join(notes(comparisons))),
        caption_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    for place, heading in enumerate(headings(next(iter(comparisons.values())))):
        # narrow terminals fold names and pairs of numbers, and cut no digits off
        table.add_column(
            plain(heading),
            justify="left" if place == 1 else "right",
            overflow="fold",
            no_wrap=heading in SHORT,
            min_width=None if heading in SHORT else 9,
        )
    for samples, comparison in comparisons.items():
        for cells in rows(samples, comparison):
            table.add_row(*map(plain, cells))
        table.add_section()
    return table


def comparison_markdown(comparisons: Comparisons, title: str) -> str:
    """The table in Markdown, with a heading and the notes below."""
    columns = headings(next(iter(comparisons.values())))
    lines = [columns, [":--" if place == 1 else "--:" for place in range(len(columns))]]
    for samples, comparison in comparisons.items():
        lines += rows(samples, comparison)
    table = ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]
    remarks = [f"* {note}" for note in notes(comparisons)]
    return "\n".join([f"## {title}", "", *table, "", *remarks]) + "\n"


def comparison_content(
    comparisons: Comparisons, tables: tuple[Sequence[str], Sequence[str]]
) -> dict[str, Any]:
    """Everything that was found, for JSON; a figure that does not exist is None.

    Shares are 0..1, RRE in degrees, RTE in metres. ``gain`` holds differences by number of samples
    and figure (value, low, high, pairs, effect), ``methods`` both methods with their tables and,
    by number of samples, their figures over runs (mean, sd, values) and RRE and RTE over the pairs
    that both register (mean, median).
    """
    first = next(iter(comparisons.values()))
    rule = first.protocol
    return {
        "names": list(first.names),
        "number_of_runs": [len(paths) for paths in tables],
        "runs": list(tables[0]),
        "over": list(tables[1]),
        "protocol": rule.name,
        "benchmark": rule.benchmark,
        "registered_if": str(rule.success),
        "average": rule.average,
        "errors_over": rule.errors_over,
        "gain": {shown(samples): _differences(one) for samples, one in comparisons.items()},
        "methods": [
            {
                "name": name,
                "tables": list(paths),
                "figures": {
                    shown(samples): _figures(one, side) for samples, one in comparisons.items()
                },
            }
            for side, (name, paths) in enumerate(zip(first.names, tables, strict=True))
        ],
    }


def _differences(comparison: Comparison) -> dict[str, Any]:
    return {
        name: {
            "value": known(one.difference.value),
            "low": known(one.difference.low),
            "high": known(one.difference.high),
            "pairs": one.difference.pairs,
            "effect": known(one.effect),
        }
        for name, one in comparison.figures.items()
    }


def _figures(comparison: Comparison, side: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, one in comparison.figures.items():
        mean, deviation = spread(one.runs[side])
        values = [known(value) for value in one.runs[side]]
        found[name] = {"mean": known(mean), "sd": known(deviation), "values": values}
    for name in ERRORS:
        one = comparison.figures[name]
        found[f"{name}_both"] = {"mean": known(one.means[side]), "median": known(one.medians[side])}
    return found


def known(figure: float) -> float | None:
    """A figure, None where it does not exist."""
    return None if isnan(figure) else figure


def number(value: float, unit: float, digits: int, sign: str = "-") -> str:
    """A number in a unit; `-` where there is none."""
    if isnan(value):
        return NONE
    rounded = round(unit * value, digits) + 0.0  # minus zero is zero
    return f"{rounded:{sign if rounded else '-'}.{digits}f}"


def _interval(figure: Figure, unit: float, digits: int) -> str:
    if isnan(figure.low):
        return NONE
    return f"[{number(figure.low, unit, digits, '+')}, {number(figure.high, unit, digits, '+')}]"


def _spread(values: Iterable[float], unit: float, digits: int) -> str:
    """Mean ± deviation over runs, the mean alone of one run."""
    mean, deviation = spread(values)
    text = number(mean, unit, digits)
    return text if isnan(deviation) else f"{text} ± {number(deviation, unit, digits)}"
