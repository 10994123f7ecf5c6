"""Per-pair results as a CSV file."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

from pcnn.datasets.whole_file import whole_file
from pcnn.metrics.registration.pair_result import PairResult
from pcnn.metrics.registration.protocols import Protocol
from pcnn.metrics.registration.summary import counts_for_recall, succeeded

COLUMNS = (
    "samples",
    "icp",
    "scene",
    "target",
    "source",
    "rre_deg",
    "rte_m",
    "rmse_m",
    "inlier_ratio",
    "matches",
    "inliers",
    "counted",
    "success",
    "seconds",
)


def write_pair_table(
    path: Path,
    results: Mapping[int | None, Sequence[PairResult]],
    refined: Mapping[int | None, Sequence[PairResult]],
    protocol: Protocol,
) -> Path:
    """Write one line a pair and number of samples; those after ICP have ``icp`` 1.

    A figure that does not exist is left empty. The file appears whole or not at all.

    Args:
        path: the CSV file.
        results: by number of samples.
        refined: after ICP, by number of samples; may be empty.
        protocol: says what counts and succeeds.

    Returns:
        `path`.
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for icp, groups in ((0, results), (1, refined)):
        for samples, pairs in groups.items():
            success = succeeded(pairs, protocol.success)
            counted = counts_for_recall(pairs, protocol)
            for pair, good, counts in zip(pairs, success, counted, strict=True):
                writer.writerow(
                    [
                        "all" if samples is None else samples,
                        icp,
                        pair.scene,
                        pair.target,
                        pair.source,
                        *(
                            "" if value != value else f"{value:.6g}"
                            for value in (pair.rre, pair.rte, pair.rmse, pair.inlier_ratio)
                        ),
                        pair.matches,
                        pair.inliers,
                        int(counts),
                        int(good),
                        "" if pair.seconds != pair.seconds else f"{pair.seconds:.4f}",
                    ]
                )
    with whole_file(path) as file:
        file.write(text.getvalue().encode())
    return path
