from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pcnn.metrics.registration import PairResult, paired_difference, protocol
from pcnn.metrics.registration.comparison import compare, comparison_table
from pcnn.metrics.registration.pair_table import read_pair_table, write_pair_table

RULES = protocol("strict", "threedmatch")  # 5 degrees and 0.1 m, every pair


def results(good: list[bool], ratio: float = 0.2, scene: str = "a") -> list[PairResult]:
    return [
        PairResult(scene, place, place + 3, 1.0 if one else 90.0, 0.05, inlier_ratio=ratio)
        for place, one in enumerate(good)
    ]


def test_gain_is_the_difference_and_its_interval_that_of_pairs() -> None:
    first = results([True] * 6 + [False] * 4, 0.3)
    second = results([True] * 4 + [False] * 6, 0.04)
    found = compare(first, list(reversed(second)), RULES, draws=500)
    assert found.rr.value == pytest.approx(0.2)
    assert found.fmr.value == 1.0  # 4 % of right matches is too little
    assert found.ir.value == pytest.approx(0.26)
    plain = paired_difference(
        np.array([1.0] * 6 + [0.0] * 4), np.array([1.0] * 4 + [0.0] * 6), draws=500
    )
    assert found.rr.low == pytest.approx(plain.low, abs=0.1)
    assert found.rr.low == 0.0  # both succeed or fail together but for two pairs
    assert "20.0" in str(list(comparison_table({None: found}, "x").columns[1].cells))


def test_means_are_those_of_the_protocol() -> None:
    first = results([True] * 4) + results([False], scene="b")
    second = results([False] * 4) + results([False], scene="b")
    assert compare(first, second, RULES, 0).rr.value == pytest.approx(0.5)  # of scene means
    pairs = replace(RULES, average="pairs")
    assert compare(first, second, pairs, 0).rr.value == pytest.approx(0.8)


def test_other_pairs_are_refused() -> None:
    with pytest.raises(ValueError, match="not of the same pairs: 3 and 2 of them, 1 in one alone"):
        compare(results([True] * 3), results([True] * 2), RULES)


def test_a_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    given = {
        250: results([True, False]),
        None: [PairResult("b", 1, 2, np.nan, np.nan, 0.5, np.nan, 7, 3, seconds=0.25)],
    }
    path = write_pair_table(tmp_path / "pairs.csv", given, {250: results([True, True])}, RULES)
    read = read_pair_table(path)
    assert list(read) == [250, None]
    for number, pairs in given.items():
        assert str(read[number]) == str([replace(pair, index=0) for pair in pairs])
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"other\.csv: not a table of pairs, it lacks counted"):
        read_pair_table(tmp_path / "other.csv")
    path.write_text(path.read_text().replace("250,0,a,0", "250,0,a,x"))
    with pytest.raises(ValueError, match=r"pairs\.csv, line 2: .*'x'"):
        read_pair_table(path)
    with pytest.raises(FileNotFoundError, match=r"none\.csv"):
        read_pair_table(tmp_path / "none.csv")
