"""A comparison of two methods as rows, for the terminal and for a paper."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isnan

from rich.box import SIMPLE_HEAD
from rich.table import Table

from pcnn.console import plain
from pcnn.metrics.registration.bootstrap import Figure
from pcnn.metrics.registration.gain import Gain, Spread
from pcnn.metrics.registration.pair_values import ERRORS, FIGURES
from pcnn.metrics.registration.table import averaged_over
from pcnn.plural import counted

#: Heading, factor and digits of every figure, and of its difference.
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


@dataclass(frozen=True)
class Row:
    """One figure of two methods, as text.

    Args:
        samples: number of samples, or ``all``.
        figure: heading with its unit, and which way is better.
        first: the first method's.
        second: the second's.
        difference: first minus second, with sign.
        interval: its 95 % interval.
        effect: Cohen's d of the paired differences.
        pairs: that were compared.
    """

    samples: str
    figure: str
    first: str
    second: str
    difference: str = ""
    interval: str = ""
    effect: str = ""
    pairs: str = ""

    def cells(self) -> list[str]:
        """All of them, in the order of the headings."""
        return [
            self.samples,
            self.figure,
            self.first,
            self.second,
            self.difference,
            self.interval,
            self.effect,
            self.pairs,
        ]


def headings(gain: Gain) -> list[str]:
    """Of the columns of `Row.cells`."""
    one, other = gain.first.name, gain.second.name
    return ["samples", "figure", one, other, "difference", "95 %", "d", "pairs"]


def rows(samples: int | None, gain: Gain) -> list[Row]:
    """Rows of one number of samples.

    RR, FMR and IR stand with their mean and standard deviation over runs and their difference. RRE
    and RTE have three rows: mean and median over the pairs that both register, of which the first
    has the difference, and each method's own mean and deviation over runs.
    """
    at = "all" if samples is None else str(samples)
    found = []
    for name, effect in zip(FIGURES, gain.comparison.effects, strict=True):
        heading, unit, digits = SHOWN[name]
        own = [spread(one.runs[name], unit, digits) for one in (gain.first, gain.second)]
        figure: Figure = getattr(gain.comparison, name)
        compared = (
            number(figure.value, unit, digits, "+"),
            interval(figure, unit, digits),
            number(effect, 1, 2, "+"),
            str(figure.pairs),
        )
        if name not in ERRORS:
            found.append(Row(at, f"{heading} ↑", own[0], own[1], *compared))
            continue
        centres = gain.first.common[name], gain.second.common[name]
        means = [number(one.mean, unit, digits) for one in centres]
        medians = [number(one.median, unit, digits) for one in centres]
        both = f"{heading} ↓, both register"
        found.append(Row(at, both, means[0], means[1], *compared))
        found.append(Row(at, f"{both}, median", medians[0], medians[1], pairs=str(figure.pairs)))
        found.append(Row(at, f"{heading} ↓, own pairs", *own))
    return found


def notes(gains: Mapping[int | None, Gain]) -> list[str]:
    """What the figures rest on, in words, one sentence each."""
    one = next(iter(gains.values()))
    rule = one.protocol
    runs = [len(method.runs["rr"].values) for method in (one.first, one.second)]
    of_runs = [counted(number, "run") for number in runs]
    said = [
        f"Protocol {rule.name} of {rule.benchmark}: registered if {rule.success}; means over "
        f"{rule.average}.",
        f"{one.first.name}: {of_runs[0]}, {one.second.name}: {of_runs[1]}; "
        "mean ± standard deviation over runs"
        + (" (none over a single run)." if 1 in runs else "."),
        f"Difference: {one.first.name} minus {one.second.name} over pairs, each with its mean over "
        "a method's runs; 95 % by bootstrap over pairs; d is Cohen's of the paired differences.",
        "'both register': pairs that each method registers in one run or more, each error the mean "
        f"over those runs; 'own pairs': {averaged_over(rule.errors_over)} of each run by itself, "
        "which are not the same pairs.",
    ]
    if not all(gain.values["ir"].compared.all() for gain in gains.values()):
        said.append(
            "Pairs without matches: a method's FMR and IR leave its own out; the difference of FMR "
            "counts them as too few right matches, that of IR is over pairs where both have some."
        )
    empty = [
        "all" if samples is None else str(samples)
        for samples, gain in gains.items()
        if gain.comparison.rre.pairs == 0
    ]
    if empty:
        said.append(
            f"No pair is registered by both methods at samples {', '.join(empty)}: RRE and RTE "
            "cannot be compared."
        )
    return said


def gain_table(gains: Mapping[int | None, Gain], title: str) -> Table:
    """The table of the terminal.

    Args:
        gains: by number of samples; None when all points were used.
        title: what is compared.
    """
    first = next(iter(gains.values()))
    table = Table(
        title=plain(title),
        title_justify="left",
        caption=plain("\n".join(notes(gains))),
        caption_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    for place, heading in enumerate(headings(first)):
        # narrow terminals fold names and pairs of numbers, and cut no digits off
        table.add_column(
            plain(heading),
            justify="left" if place == 1 else "right",
            overflow="fold",
            no_wrap=heading in SHORT,
            min_width=None if heading in SHORT else 9,
        )
    for samples, gain in gains.items():
        for row in rows(samples, gain):
            table.add_row(*(plain(cell) for cell in row.cells()))
        table.add_section()
    return table


def gain_markdown(gains: Mapping[int | None, Gain], title: str) -> str:
    """The table in Markdown, with a heading and what it rests on below.

    Args:
        gains: by number of samples.
        title: what is compared.
    """
    first = next(iter(gains.values()))
    columns = headings(first)
    lines = [f"## {title}", "", _line(columns)]
    lines.append(_line([":--" if place == 1 else "--:" for place in range(len(columns))]))
    for samples, gain in gains.items():
        lines += [_line(row.cells()) for row in rows(samples, gain)]
    lines += ["", *(f"* {note}" for note in notes(gains))]
    return "\n".join(lines) + "\n"


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def number(value: float, unit: float, digits: int, sign: str = "-") -> str:
    """A number in a unit; `-` where there is none."""
    if isnan(value):
        return NONE
    rounded = round(unit * value, digits) + 0.0  # minus zero is zero
    if rounded == 0:
        sign = "-"
    return f"{rounded:{sign}.{digits}f}"


def interval(figure: Figure, unit: float, digits: int) -> str:
    """The ends of an interval in a unit; `-` where there is none."""
    if isnan(figure.low):
        return NONE
    return f"[{number(figure.low, unit, digits, '+')}, {number(figure.high, unit, digits, '+')}]"


def spread(one: Spread, unit: float, digits: int) -> str:
    """Mean ± deviation over runs, the mean alone of one run."""
    if isnan(one.mean) or isnan(one.deviation):
        return number(one.mean, unit, digits)
    return f"{number(one.mean, unit, digits)} ± {number(one.deviation, unit, digits)}"
