"""The tables that an evaluation of registration prints, and that of its pairs as a CSV file."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from math import isnan
from pathlib import Path

from rich.table import Table

from pcnn.files.whole_file import whole_file
from pcnn.messages import counted
from pcnn.metrics.registration.pair_results import JudgedPairs, PairResult
from pcnn.metrics.registration.protocols import Protocol
from pcnn.metrics.registration.summary import Summary

COLUMNS = (
    *("samples", "scene", "target", "source", "index"),
    *("rre_deg", "rte_m", "rmse_m", "inlier_ratio", "matches", "inliers"),
    *("counted", "success", "seconds"),
)


def registration_table(summaries: Mapping[int | None, Summary], title: str) -> Table:
    """One row a number of samples, one column a figure."""
    first = next(iter(summaries.values()))
    rule = first.protocol
    table = Table(title=title, title_justify="left", caption=caption(first), caption_justify="left")
    for heading in ("samples", "RR %", "FMR %", "IR %", "mean RRE deg", "mean RTE m"):
        table.add_column(heading, justify="right")
    other = "pairs" if rule.average == "scenes" else "scenes"
    table.add_column(f"RR % over {other}", justify="right")
    for samples, summary in summaries.items():
        opposite = summary.rr_pairs if other == "pairs" else summary.rr_scenes
        table.add_row(
            shown(samples),
            percent(summary.rr),
            percent(summary.fmr),
            percent(summary.ir),
            plain(summary.rre),
            plain(summary.rte),
            percent(opposite),
        )
    return table


def caption(summary: Summary) -> str:
    """The basis of the figures, in words."""
    rule = summary.protocol
    over = {"each": "pairs below the threshold of each", "all": "all pairs with an estimate"}
    lines = [
        f"protocol {rule.name}: registered if {rule.success}; right match below "
        f"{rule.inlier_distance:g} m, FMR {'from' if rule.share_inclusive else 'above'} "
        f"{100 * rule.inlier_share:g} %",
        f"RR over {summary.counted} of {counted(summary.pairs, 'pair')}"
        + (", consecutive ones left out" if rule.skip_consecutive else "")
        + f"; means over {rule.average}; RRE and RTE over "
        + over.get(rule.errors_over, "accepted pairs"),
        f"matching {rule.matching}, sampling {rule.sampling}, RANSAC of {rule.ransac.points} "
        f"matches within {rule.ransac.distance:g} m, {rule.ransac.hypotheses} hypotheses, "
        f"confidence {rule.ransac.confidence:g}",
    ]
    for number, what in (
        (summary.no_estimate, "without an estimate"),
        (summary.unjudged, "that cannot be judged (empty gt.info)"),
    ):
        if number:
            lines.append(f"{counted(number, 'pair')} {what}: counted as failures")
    return "\n".join(lines)


def percent(figure: float) -> str:
    """A share in percent; `-` for a mean over nothing."""
    return "-" if isnan(figure) else f"{100 * figure:.1f}"


def plain(figure: float) -> str:
    return "-" if isnan(figure) else f"{figure:.3f}"


def write_pair_table(
    path: Path, results: Mapping[int | None, Sequence[PairResult]], protocol: Protocol
) -> Path:
    """Write one line a pair and number of samples; a figure that does not exist is left empty."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for samples, pairs in results.items():
        judged = JudgedPairs(pairs, protocol)
        for pair, good, counts in zip(pairs, judged.registered, judged.counted, strict=True):
            errors = pair.rre, pair.rte, pair.rmse, pair.inlier_ratio
            writer.writerow(
                [
                    shown(samples),
                    *(pair.scene, pair.target, pair.source, pair.index),
                    *("" if value != value else f"{value:.6g}" for value in errors),
                    *(pair.matches, pair.inliers, int(counts), int(good)),
                    "" if pair.seconds != pair.seconds else f"{pair.seconds:.4f}",
                ]
            )
    with whole_file(path) as file:
        file.write(text.getvalue().encode())
    return path


def shown(samples: int | None) -> str:
    """A number of samples as a name."""
    return "all" if samples is None else str(samples)
