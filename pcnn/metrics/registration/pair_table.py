"""Per-pair results as a CSV file."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

from pcnn.files.whole_file import whole_file
from pcnn.metrics.registration.pair_results import JudgedPairs, PairResult
from pcnn.metrics.registration.protocols import Protocol

COLUMNS = (
    *("samples", "scene", "target", "source", "index"),
    *("rre_deg", "rte_m", "rmse_m", "inlier_ratio", "matches", "inliers"),
    *("counted", "success", "seconds"),
)


def write_pair_table(
    path: Path,
    results: Mapping[int | None, Sequence[PairResult]],
    protocol: Protocol,
) -> Path:
    """Write one line a pair and number of samples.

    A figure that does not exist is left empty. The file appears whole or not at all.
    """
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
