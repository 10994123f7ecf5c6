"""The CSV file of pairs."""

import csv
from dataclasses import replace
from math import nan
from pathlib import Path

from pcnn.metrics.registration import PairResult, protocol
from pcnn.metrics.registration.table import write_pair_table

RULES = protocol("strict", "threedmatch")


def test_every_pair_has_a_line_and_what_does_not_exist_is_empty(tmp_path: Path) -> None:
    pair = PairResult("a", 0, 3, 1.0, 0.05, inlier_ratio=0.2)
    given = {
        250: [pair, replace(pair, target=1, rre=90.0, index=1)],
        None: [PairResult("b", 1, 2, nan, nan, 0.5, nan, 7, 3, seconds=0.25)],
    }
    path = write_pair_table(tmp_path / "pairs.csv", given, RULES)
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["samples"], row["success"]) for row in rows] == [
        ("250", "1"), ("250", "0"), ("all", "0"),
    ]  # fmt: skip
    assert [row["rre_deg"] for row in rows] == ["1", "90", ""]
    assert [row["seconds"] for row in rows] == ["", "", "0.2500"]
