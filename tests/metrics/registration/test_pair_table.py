"""The CSV file of pairs."""

import csv
from dataclasses import replace
from math import nan
from pathlib import Path

import pytest

from pcnn.metrics.registration import JudgedPairs, PairResult, protocol
from pcnn.metrics.registration.pair_table import read_pair_table, write_pair_table

RULES = protocol("strict", "threedmatch")


def test_a_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    pair = PairResult("a", 0, 3, 1.0, 0.05, inlier_ratio=0.2)
    other = replace(pair, target=1, rre=90.0, index=1)
    given = {
        250: [pair, other],
        None: [PairResult("b", 1, 2, nan, nan, 0.5, nan, 7, 3, seconds=0.25)],
    }
    path = write_pair_table(tmp_path / "pairs.csv", given, {250: [pair, pair]}, RULES)
    read = read_pair_table(path)
    assert str(read) == str(given)  # NaN equals itself as text
    lost = replace(RULES, lose_first=True)
    assert JudgedPairs(read[250], lost).counted.tolist() == [False, True]
    with path.open(newline="") as file:  # as earlier versions wrote it
        rows = [{k: v for k, v in row.items() if k != "index"} for row in csv.DictReader(file)]
    with (tmp_path / "old.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    old = read_pair_table(tmp_path / "old.csv")[250]
    assert [pair.index for pair in old] == [-1, -1]
    assert JudgedPairs(old, RULES).counted.all()
    with pytest.raises(ValueError, match="do not tell which that is in scene a"):
        JudgedPairs(old, lost)
    path.write_text(path.read_text().replace("250,0,a,0", "250,0,a,x"))
    with pytest.raises(ValueError, match=r"pairs\.csv: line 2: .*'x'"):
        read_pair_table(path)
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"pairs\.csv: not a table of pairs, it lacks counted"):
        read_pair_table(path)
    with pytest.raises(FileNotFoundError, match=r"none\.csv"):
        read_pair_table(tmp_path / "none.csv")
