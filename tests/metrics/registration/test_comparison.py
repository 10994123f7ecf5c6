"""Two methods on the same pairs."""

import json
from dataclasses import replace
from math import isnan

import numpy as np
import pytest

from pcnn.metrics.registration import PairResult, compare, protocol, recall_curve, summarize
from pcnn.metrics.registration.comparison import mean_of_known
from pcnn.metrics.registration.comparison_report import (
    comparison_content,
    comparison_markdown,
    comparison_table,
    notes,
    rows,
    spread,
)
from tests.metrics.registration.two_methods import failed, runs

STRICT = protocol("strict", "threedmatch")  # 5 degrees and 0.1 m, every pair
INDOOR = protocol("predator", "threedmatch")  # RMSE <= 0.2 m, scene means, no consecutive pairs
BY_PAIRS = replace(INDOOR, average="pairs")
FIRST, SECOND = runs(4, 0.7, seed=1), runs(3, 0.5, seed=2)


def results(good: list[bool], ratio: float = 0.2, scene: str = "a") -> list[PairResult]:
    return [
        PairResult(scene, place, place + 3, 1.0 if one else 90.0, 0.05, inlier_ratio=ratio)
        for place, one in enumerate(good)
    ]


def test_the_difference_and_its_interval_are_those_of_pairs() -> None:
    first = results([True] * 6 + [False] * 4, 0.3)
    second = results([True] * 4 + [False] * 6, 0.04)
    found = compare([first], [list(reversed(second))], STRICT, draws=500).figures
    rr = found["rr"].difference
    assert (rr.value, rr.low) == (pytest.approx(0.2), 0.0)  # they differ in two pairs of ten
    assert 0.3 <= rr.high <= 0.6
    assert found["fmr"].difference.value == 1.0  # 4 % of right matches is too little
    assert found["ir"].difference.value == pytest.approx(0.26)
    # without matches: too few right ones for FMR, no pair for IR
    none = compare([first], [results([False] * 10, np.nan)], STRICT, draws=0).figures
    assert (none["fmr"].difference.value, none["ir"].difference.pairs) == (1.0, 0)


def test_means_are_those_of_the_protocol() -> None:
    first = results([True] * 4) + results([False], scene="b")
    second = results([False] * 4) + results([False], scene="b")
    for rules, value in ((STRICT, 0.5), (replace(STRICT, average="pairs"), 0.8)):
        found = compare([first], [second], rules, draws=0).figures["rr"]
        assert found.difference.value == pytest.approx(value)


def test_runs_are_averaged_before_pairs_are_drawn() -> None:
    first = [results([True, True, False, False]), results([True, False, True, False])]
    second = [results([False, False, False, True])]
    found = compare(first, second, STRICT, draws=400).figures
    gaps = np.array([1.0, 0.5, 0.5, -1.0])
    assert found["rr"].gaps.tolist() == gaps.tolist()
    assert found["rr"].difference.value == pytest.approx(gaps.mean())
    assert found["rr"].effect == pytest.approx(gaps.mean() / gaps.std(ddof=1))
    assert isnan(found["fmr"].effect)  # no difference at all
    # the same run twice says no more than once
    once, twice = (compare(first[:1] * n, second * n, STRICT, draws=400).figures for n in (1, 2))
    assert once["rr"].difference == twice["rr"].difference
    np.testing.assert_array_equal(
        mean_of_known(np.array([[1.0, np.nan, np.nan], [3.0, 5.0, np.nan]])), [2.0, 5.0, np.nan]
    )


@pytest.mark.parametrize("name", ["rre", "rte"])
def test_errors_are_compared_where_both_methods_register(name: str) -> None:
    errors, scenes = [], []
    for place, pair in enumerate(FIRST[0]):
        sides = [
            [getattr(run[place], name) for run in method if run[place].rmse <= 0.2]
            for method in (FIRST, SECOND)
        ]
        if not pair.consecutive and all(sides):
            errors.append([np.mean(side) for side in sides])
            scenes.append(pair.scene)
    both = np.array(errors).T
    assert 5 < both.shape[1] < 23  # neither none nor all of those that count
    gap = both[0] - both[1]
    found = compare(FIRST, SECOND, BY_PAIRS, draws=50).figures[name]
    assert found.difference.pairs == len(gap)
    assert found.difference.value == pytest.approx(gap.mean())
    assert found.difference.low < found.difference.value < found.difference.high
    assert found.effect == pytest.approx(gap.mean() / gap.std(ddof=1))
    assert found.means == pytest.approx(both.mean(1))
    assert found.medians == pytest.approx(np.median(both, 1))
    by_scene = [np.mean([g for g, at in zip(gap, scenes, strict=True) if at == s]) for s in "abc"]
    found = compare(FIRST, SECOND, INDOOR, draws=0).figures[name]
    assert found.difference.value == pytest.approx(np.mean(by_scene))
    assert found.means[0] - found.means[1] == pytest.approx(np.mean(by_scene))


def test_a_method_has_the_figures_of_its_evaluations() -> None:
    found = compare(FIRST, SECOND, INDOOR, draws=0)
    for name, figure in found.figures.items():
        for values, side in zip(figure.runs, (FIRST, SECOND), strict=True):
            own = [getattr(summarize(run, INDOOR, draws=0), name).value for run in side]
            assert values == pytest.approx(own)
            assert spread(values) == pytest.approx((np.mean(own), np.std(own, ddof=1)))
    assert (found.error, found.recall[1].shape) == ("rmse", (3, len(found.limits)))
    own = recall_curve(SECOND[1], INDOOR, "rmse", found.limits)
    np.testing.assert_array_equal(found.recall[1][1], own)
    by_rte = compare(FIRST, SECOND, STRICT, draws=0)
    assert (by_rte.error, by_rte.limits[-1]) == ("rte", 0.25)


def test_one_run_has_no_deviation() -> None:
    found = compare(FIRST[:1], SECOND, INDOOR, ("one", "several"), draws=20)
    row = rows(None, found)[0]
    assert "±" not in row[2]
    assert "±" in row[3]
    assert any("one: 1 run, several: 3 runs" in note for note in notes({None: found}))
    assert np.isnan(spread([np.nan])).all()
    assert spread([1.0, np.nan])[0] == 1.0


def test_no_pair_that_both_register() -> None:
    found = {5000: compare(FIRST, [failed()], INDOOR, ("good", "bad"), draws=20)}
    text = comparison_markdown(found, "good against bad")
    assert "No pair is registered by both methods at samples 5000" in text
    assert "| 5000 | RTE m ↓, both register | - | - | - | - | - | 0 |" in text
    content = comparison_content(found, (["a.csv"] * 4, ["b.csv"]))
    json.dumps(content, allow_nan=False)
    nothing = {"value": None, "low": None, "high": None, "pairs": 0, "effect": None}
    assert content["gain"]["5000"]["rte"] == nothing
    bad = content["methods"][1]["figures"]["5000"]
    assert bad["rre_both"] == {"mean": None, "median": None}
    assert bad["rre"] == {"mean": None, "sd": None, "values": [None]}
    assert bad["rr"]["mean"] == 0.0


def test_the_table_and_its_numbers() -> None:
    found = compare(FIRST, SECOND, INDOOR, ("points | thin", "vox[els]"), draws=200)
    lines = comparison_markdown({250: found, None: found}, "title").splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert len(table) == 2 + 2 * 9
    assert "points \\| thin | vox[els]" in table[0]
    rr = "69.6 ± 13.1 | 51.2 ± 7.2 | +18.5 | [+6.0, +33.9] | +0.41 | 22"  # as in all versions
    assert table[2] == f"| 250 | RR % ↑ | {rr} |"
    assert table[-1].startswith("| all | RTE m ↓, own pairs |")
    assert comparison_table({250: found, None: found}, "[title]").row_count == 18
    scarce = notes({250: compare(FIRST[:1], SECOND[:1], INDOOR, draws=0)})
    assert any("Pairs without matches" in note for note in scarce)
    full = [replace(pair, inlier_ratio=0.1) for pair in FIRST[0]]
    whole = notes({None: compare([full], [full], INDOOR, draws=0)})
    assert not any("No pair" in note or "Pairs without matches" in note for note in whole)


def test_runs_that_cannot_be_compared_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"30 and 29 of them, 1 in one alone, such as a \(0, 1\), in run 2 of the"
    ):
        compare(FIRST, [SECOND[0], SECOND[1][1:]], INDOOR)
    with pytest.raises(ValueError, match="occurs twice"):
        compare([FIRST[0] + FIRST[0][:1]], SECOND, INDOOR)
    unjudged = [replace(pair, rmse=np.nan) for pair in SECOND[0]]
    with pytest.raises(ValueError, match="asks for RMSE, and no pair has one"):
        compare(FIRST, [unjudged], INDOOR)
    with pytest.raises(ValueError, match="one run of each method"):
        compare(FIRST, [], INDOOR)
    with pytest.raises(ValueError, match="both methods are named 'B'"):
        compare(FIRST, SECOND, INDOOR, ("B", "B"))
