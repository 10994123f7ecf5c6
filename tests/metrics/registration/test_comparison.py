from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from pcnn.cli.commands import app
from pcnn.metrics.registration import PairResult, paired_difference, protocol
from pcnn.metrics.registration.comparison import compare, compare_runs, comparison_table
from pcnn.metrics.registration.pair_table import read_pair_table, write_pair_table
from pcnn.metrics.registration.summary import counts_for_recall

RULES = protocol("strict", "threedmatch")  # 5 degrees and 0.1 m, every pair


def results(good: list[bool], ratio: float = 0.2, scene: str = "a") -> list[PairResult]:
    return [
        PairResult(
            scene, place, place + 3, 1.0 if one else 90.0, 0.05, inlier_ratio=ratio, index=place
        )
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


def test_runs_are_averaged_before_pairs_are_drawn() -> None:
    first = [results([True, True, False, False]), results([True, False, True, False])]
    second = [results([False, False, False, True])]
    found = compare_runs(first, second, RULES, draws=400)
    gaps = np.array([1.0, 0.5, 0.5, -1.0])
    assert found.rr.value == pytest.approx(gaps.mean())
    assert found.rr.pairs == 4
    assert found.effects[0] == pytest.approx(gaps.mean() / gaps.std(ddof=1))
    assert np.isnan(found.effects[1])  # no difference at all
    # the same run twice says no more than once
    once = compare_runs(first[:1], second, RULES, draws=400)
    twice = compare_runs(first[:1] * 2, second * 3, RULES, draws=400)
    assert once.rr == twice.rr
    assert once.ir.value == pytest.approx(twice.ir.value, abs=1e-12)
    with pytest.raises(ValueError, match="one run of each method"):
        compare_runs([], second, RULES)


def test_pairs_without_matches_gain_nothing() -> None:
    first, second = results([True] * 3, 0.5), results([False] * 3, np.nan)
    found = compare(first, second, RULES, 0)
    assert found.fmr.value == 1.0
    assert (found.ir.pairs, found.rr.value) == (0, 1.0)


def test_gain_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # short names: messages break long ones over lines
    paths = []
    for name, good in (("a", [True, True, False]), ("b", [True, False, False]), ("c", [False] * 3)):
        given = {250: results(good), None: results(good)}
        paths.append(str(write_pair_table(tmp_path / f"{name}.csv", given, {}, RULES)))
    options = ["--over", paths[2], "--protocol", "strict", "--out", str(tmp_path / "gain.json")]
    done = CliRunner().invoke(app, ["gain", *paths[:2], *options])
    assert done.exit_code == 0, done.output
    written = json.loads((tmp_path / "gain.json").read_text())["gain"]
    assert written["250"] == written["all"]
    assert written["250"]["rr"]["value"] == pytest.approx(0.5)
    assert (written["250"]["rr"]["low"], written["250"]["rr"]["high"]) == (0.0, 1.0)
    done = CliRunner().invoke(app, ["gain", "a.csv", "--over", "none.csv"])
    assert done.exit_code == 2
    assert "none.csv" in done.output


def test_a_gain_that_does_not_exist_is_null(tmp_path: Path) -> None:
    paths = [
        str(write_pair_table(tmp_path / f"{ratio}.csv", {None: results([True], ratio)}, {}, RULES))
        for ratio in (0.2, np.nan)
    ]
    out = tmp_path / "gain.json"
    line = ["gain", paths[0], "--over", paths[1], "--protocol", "strict", "--out", str(out)]
    assert CliRunner().invoke(app, line).exit_code == 0
    gain = json.loads(out.read_text(), parse_constant=pytest.fail)["gain"]["all"]
    assert gain["ir"] == {"value": None, "low": None, "high": None, "pairs": 0, "effect": None}
    assert gain["fmr"]["value"] == 1.0


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
        assert str(read[number]) == str(pairs)  # NaN equals itself as text
    lost = replace(RULES, lose_first=True)
    assert counts_for_recall(read[250], lost).tolist() == [False, True]
    with path.open(newline="") as file:  # as earlier versions wrote it
        rows = [{k: v for k, v in row.items() if k != "index"} for row in csv.DictReader(file)]
    with (tmp_path / "old.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    old = read_pair_table(tmp_path / "old.csv")[250]
    assert [pair.index for pair in old] == [-1, -1]
    assert counts_for_recall(old, RULES).all()
    with pytest.raises(ValueError, match="do not tell which that is in scene a"):
        counts_for_recall(old, lost)
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"other\.csv: not a table of pairs, it lacks counted"):
        read_pair_table(tmp_path / "other.csv")
    path.write_text(path.read_text().replace("250,0,a,0", "250,0,a,x"))
    with pytest.raises(ValueError, match=r"pairs\.csv: line 2: .*'x'"):
        read_pair_table(path)
    with pytest.raises(FileNotFoundError, match=r"none\.csv"):
        read_pair_table(tmp_path / "none.csv")
