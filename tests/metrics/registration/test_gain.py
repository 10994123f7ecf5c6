from __future__ import annotations

import json
from dataclasses import replace
from math import isnan

import numpy as np
import pytest

from pcnn.metrics.registration import protocol, recall_curve, summarize
from pcnn.metrics.registration.gain import Spread, gain_of
from pcnn.metrics.registration.gain_content import gain_content
from pcnn.metrics.registration.gain_table import gain_markdown, gain_table, notes, rows
from pcnn.metrics.registration.pair_result import PairResult
from pcnn.metrics.registration.pair_values import mean_over_runs
from tests.metrics.registration.two_methods import failed, runs

INDOOR = protocol("predator", "threedmatch")  # RMSE <= 0.2 m, scene means, no consecutive pairs
BY_PAIRS = replace(INDOOR, average="pairs")
FIRST, SECOND = runs(4, 0.7, seed=1), runs(3, 0.5, seed=2)


def errors_of_both(name: str) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """By hand, pair by pair: mean error over the runs that register it, where both methods do."""
    found, scenes = [], []
    for place, pair in enumerate(FIRST[0]):
        if pair.source == pair.target + 1:
            continue
        sides = [
            [getattr(run[place], name) for run in method if run[place].rmse <= 0.2]
            for method in (FIRST, SECOND)
        ]
        if sides[0] and sides[1]:
            found.append([sum(side) / len(side) for side in sides])
            scenes.append(pair.scene)
    first, second = np.array(found).T
    return first, second, scenes


@pytest.mark.parametrize("name", ["rre", "rte"])
def test_errors_are_compared_where_both_methods_register(name: str) -> None:
    found = gain_of(FIRST, SECOND, BY_PAIRS, draws=50)
    first, second, scenes = errors_of_both(name)
    assert 5 < len(first) < 23  # neither none nor all of those that count
    gap = first - second
    figure = getattr(found.comparison, name)
    assert figure.pairs == len(gap)
    assert figure.value == pytest.approx(gap.mean())
    assert figure.low < figure.value < figure.high
    at = 3 if name == "rre" else 4
    assert found.comparison.effects[at] == pytest.approx(gap.mean() / gap.std(ddof=1))
    for method, values in ((found.first, first), (found.second, second)):
        assert method.common[name].mean == pytest.approx(values.mean())
        assert method.common[name].median == pytest.approx(np.median(values))
    # a protocol of scene means
    by_scene = [np.mean([g for g, at in zip(gap, scenes, strict=True) if at == s]) for s in "abc"]
    found = gain_of(FIRST, SECOND, INDOOR, draws=0)
    assert getattr(found.comparison, name).value == pytest.approx(np.mean(by_scene))
    means = found.first.common[name].mean - found.second.common[name].mean
    assert means == pytest.approx(np.mean(by_scene))


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    rng = np.random.default_rng(5)
    held = 0
    for _ in range(100):
        pairs = [[], []]
        for place in range(60):
            hard = rng.gamma(2.0, 1.0)
            for side, better in enumerate((0.0, 0.3)):  # 0.3 degrees are gained
                rre = hard + better + 0.5 * rng.standard_normal()
                pairs[side].append(PairResult("a", place, place + 2, rre, 0.05, 0.1, 0.5))
        figure = gain_of([pairs[0]], [pairs[1]], BY_PAIRS, draws=300).comparison.rre
        held += figure.low <= -0.3 <= figure.high
    assert 88 <= held <= 99


def test_a_method_has_the_mean_and_deviation_of_its_evaluations() -> None:
    found = gain_of(FIRST, SECOND, INDOOR, draws=0)
    for method, side in ((found.first, FIRST), (found.second, SECOND)):
        for name, spread in method.runs.items():
            own = [getattr(summarize(run, INDOOR, draws=0), name).value for run in side]
            assert spread.values == pytest.approx(own)
            assert spread.mean == pytest.approx(sum(own) / len(own))
            squares = sum((value - spread.mean) ** 2 for value in own)
            assert spread.deviation == pytest.approx((squares / (len(own) - 1)) ** 0.5)
    gap = found.first.runs["rr"].mean - found.second.runs["rr"].mean
    assert found.comparison.rr.value == pytest.approx(gap)
    assert found.error == "rmse"
    assert found.second.recall.shape == (3, len(found.limits))
    own = recall_curve(SECOND[1], INDOOR, "rmse", found.limits)
    np.testing.assert_array_equal(found.second.recall[1], own)
    by_rte = gain_of(FIRST, SECOND, protocol("strict", "threedmatch"), draws=0)
    assert (by_rte.error, by_rte.limits[-1]) == ("rte", 0.25)


def test_order_of_pairs_plays_no_part() -> None:
    shuffled = [list(reversed(run)) for run in SECOND]
    one, other = (
        gain_of(FIRST, SECOND, INDOOR, draws=50),
        gain_of(FIRST, shuffled, INDOOR, draws=50),
    )
    assert one.comparison == other.comparison


def test_one_run_has_no_deviation() -> None:
    found = gain_of(FIRST[:1], SECOND, INDOOR, ("one", "several"), draws=20)
    assert isnan(found.first.runs["rr"].deviation)
    row = rows(None, found)[0]
    assert "±" not in row.first
    assert "±" in row.second
    assert any("one: 1 run, several: 3 runs" in note for note in notes({None: found}))
    assert isnan(Spread((float("nan"),)).mean)
    assert Spread((1.0, float("nan"))).mean == 1.0


def test_no_pair_that_both_register() -> None:
    found = gain_of(FIRST, [failed()], INDOOR, ("good", "bad"), draws=20)
    assert (found.comparison.rre.pairs, found.comparison.rte.pairs) == (0, 0)
    assert isnan(found.comparison.rre.value)
    assert isnan(found.second.runs["rre"].mean)
    text = gain_markdown({5000: found}, "good against bad")
    assert "No pair is registered by both methods at samples 5000" in text
    assert "| 5000 | RTE m ↓, both register | - | - | - | - | - | 0 |" in text
    content = gain_content({5000: found}, (["a.csv"] * 4, ["b.csv"]))
    json.dumps(content, allow_nan=False)
    nothing = {"value": None, "low": None, "high": None, "pairs": 0, "effect": None}
    assert content["gain"]["5000"]["rte"] == nothing
    bad = content["methods"][1]["figures"]["5000"]
    assert bad["rre_both"] == {"mean": None, "median": None}
    assert bad["rre"] == {"mean": None, "sd": None, "values": [None]}
    assert bad["rr"]["mean"] == 0.0


def test_table_shows_what_was_found() -> None:
    found = gain_of(FIRST, SECOND, INDOOR, ("points | thin", "vox[els]"), draws=200)
    lines = gain_markdown({250: found, None: found}, "title").splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert len(table) == 2 + 2 * 9
    assert "points \\| thin | vox[els]" in table[0]
    rr, spread = found.comparison.rr, found.first.runs["rr"]
    assert table[2].startswith(
        f"| 250 | RR % ↑ | {100 * spread.mean:.1f} ± {100 * spread.deviation:.1f} |"
    )
    assert f"| {100 * rr.value:+.1f} | [{100 * rr.low:+.1f}, {100 * rr.high:+.1f}] |" in table[2]
    assert table[2].endswith(f"| {found.comparison.effects[0]:+.2f} | {rr.pairs} |")
    assert table[-1].startswith("| all | RTE m ↓, own pairs |")
    shown = gain_table({250: found, None: found}, "[title]")
    assert shown.row_count == 18
    assert not any("No pair" in note for note in notes({250: found}))


def test_pairs_without_matches_are_mentioned_where_there_are_some() -> None:
    def said(first: list[PairResult]) -> bool:
        found = gain_of([first], [full], INDOOR, draws=0)
        return any("Pairs without matches" in note for note in notes({None: found}))

    full = [replace(pair, inlier_ratio=0.1) for pair in FIRST[0]]
    assert not said(full)
    assert said([replace(full[0], inlier_ratio=np.nan), *full[1:]])


def test_runs_that_cannot_be_compared_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"30 and 29 of them, 1 in one alone, such as a \(0, 1\), in run 2 of the"
    ):
        gain_of(FIRST, [SECOND[0], SECOND[1][1:]], INDOOR)
    with pytest.raises(ValueError, match=r"pair \('a', 0, 1\) occurs twice"):
        gain_of([FIRST[0] + FIRST[0][:1]], SECOND, INDOOR)
    unjudged = [replace(pair, rmse=np.nan) for pair in SECOND[0]]
    with pytest.raises(ValueError, match="asks for RMSE, and no pair has one"):
        gain_of(FIRST, [unjudged], INDOOR)
    with pytest.raises(ValueError, match="one run of each method"):
        gain_of(FIRST, [], INDOOR)
    with pytest.raises(ValueError, match="both methods are named 'B'"):
        gain_of(FIRST, SECOND, INDOOR, ("B", "B"))


def test_a_mean_over_runs_leaves_out_what_is_unknown() -> None:
    nan = np.nan
    means = mean_over_runs(np.array([[1.0, nan, nan], [3.0, 5.0, nan]]))
    np.testing.assert_array_equal(means, [2.0, 5.0, nan])
