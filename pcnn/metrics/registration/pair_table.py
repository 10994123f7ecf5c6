"""Per-pair results as a CSV file, written and read again."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

from pcnn.errors import FileError, MissingFileError
from pcnn.files.bounded import named
from pcnn.files.text import read_text
from pcnn.files.whole_file import whole_file
from pcnn.metrics.registration.pair_results import JudgedPairs, PairResult
from pcnn.metrics.registration.protocols import Protocol

COLUMNS = (
    *("samples", "icp", "scene", "target", "source", "index"),
    *("rre_deg", "rte_m", "rmse_m", "inlier_ratio", "matches", "inliers"),
    *("counted", "success", "seconds"),
)


def write_pair_table(
    path: Path,
    results: Mapping[int | None, Sequence[PairResult]],
    refined: Mapping[int | None, Sequence[PairResult]],
    protocol: Protocol,
) -> Path:
    """Write one line a pair and number of samples; those after ICP have ``icp`` 1.

    A figure that does not exist is left empty. The file appears whole or not at all.
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for icp, groups in ((0, results), (1, refined)):
        for samples, pairs in groups.items():
            judged = JudgedPairs(pairs, protocol)
            for pair, good, counts in zip(pairs, judged.registered, judged.counted, strict=True):
                errors = pair.rre, pair.rte, pair.rmse, pair.inlier_ratio
                writer.writerow(
                    [
                        "all" if samples is None else samples,
                        icp,
                        *(pair.scene, pair.target, pair.source, pair.index),
                        *("" if value != value else f"{value:.6g}" for value in errors),
                        *(pair.matches, pair.inliers, int(counts), int(good)),
                        "" if pair.seconds != pair.seconds else f"{pair.seconds:.4f}",
                    ]
                )
    with whole_file(path) as file:
        file.write(text.getvalue().encode())
    return path


def read_pair_table(path: Path) -> dict[int | None, list[PairResult]]:
    """Read the results before ICP that `write_pair_table` wrote, by number of samples.

    Tables of earlier versions do not tell a pair's place in the ground truth; theirs is -1.
    """
    if not path.is_file():
        raise MissingFileError(path, "no such table of pairs")
    found: dict[int | None, list[PairResult]] = {}
    with named(path, "table of pairs"):
        lines = csv.DictReader(io.StringIO(read_text(path), newline=""))
        missing = set(COLUMNS) - {"index"} - set(lines.fieldnames or ())
        if missing:
            raise FileError(path, f"not a table of pairs, it lacks {', '.join(sorted(missing))}")
        for number, line in enumerate(lines, 2):
            if line["icp"] != "0":
                continue
            try:
                samples = None if line["samples"] == "all" else int(line["samples"])
                found.setdefault(samples, []).append(_result(line))
            except (TypeError, ValueError) as error:
                raise FileError(path, f"line {number}: {error}") from error
    if not found:
        raise FileError(path, "no pairs")
    return found


def _result(line: Mapping[str, str]) -> PairResult:
    """One line; an empty figure is one that does not exist."""
    rre, rte, rmse, ratio, seconds = (
        float(line[name] or "nan")
        for name in ("rre_deg", "rte_m", "rmse_m", "inlier_ratio", "seconds")
    )
    return PairResult(
        line["scene"],
        int(line["target"]),
        int(line["source"]),
        rre,
        rte,
        rmse,
        ratio,
        int(line["matches"]),
        int(line["inliers"]),
        int(line.get("index", -1)),
        seconds,
    )
