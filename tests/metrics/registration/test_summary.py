import csv
import hashlib
from dataclasses import replace
from math import nan
from pathlib import Path

import pytest

from pcnn.metrics.registration import NAMES, PairResult, protocol, summarize
from pcnn.metrics.registration.table import write_pair_table


def pair(
    scene: str = "a", target: int = 0, source: int = 2, index: int = 1, **errors: float
) -> PairResult:
    figures = {"rre": 0.0, "rte": 0.0, "rmse": 0.0, "inlier_ratio": 1.0} | errors
    return PairResult(scene, target, source, index=index, **figures)


@pytest.mark.parametrize("name", NAMES)
def test_every_protocol_judges_both_benchmarks(name: str) -> None:
    for benchmark in ("threedmatch", "kitti"):
        rules = protocol(name, benchmark)
        assert (rules.name, rules.benchmark) == (name, benchmark)
        good, bad = pair(source=2), pair(source=3, rre=20.0, rte=5.0, rmse=2.0)
        assert summarize([good, bad], rules).rr == 0.5


def test_numbers_of_published_protocols_stay() -> None:
    held = [
        replace(protocol(name, benchmark), source="")
        for benchmark in ("threedmatch", "kitti")
        for name in NAMES
    ]
    assert hashlib.sha256(repr(held).encode()).hexdigest()[:16] == "b3133ccdb33c9a40"


def test_consecutive_pairs_do_not_count_for_recall_but_for_matches() -> None:
    rules = protocol("geotransformer", "threedmatch")
    results = [pair(source=1, rmse=9.0, inlier_ratio=0.0), pair(source=2)]
    summary = summarize(results, rules)
    assert (summary.counted, summary.pairs, summary.rr) == (1, 2, 1)
    assert summary.fmr == 0.5
    assert summarize(results, protocol("strict", "threedmatch")).counted == 2


def test_thresholds_include_themselves_where_the_evaluator_does() -> None:
    on_it = [pair(rmse=0.2, inlier_ratio=0.05)]
    predator = summarize(on_it, protocol("predator", "threedmatch"))
    geotransformer = summarize(on_it, protocol("geotransformer", "threedmatch"))
    assert (predator.rr, predator.fmr) == (1, 0)
    assert (geotransformer.rr, geotransformer.fmr) == (0, 1)


def test_scene_means_and_pair_means() -> None:
    results = [pair("a"), *(pair("b", source=s, rmse=1.0) for s in (2, 3, 4))]
    summary = summarize(results, protocol("predator", "threedmatch"))
    assert summary.rr == summary.rr_scenes == 0.5
    assert summary.rr_pairs == 0.25


def test_errors_are_averaged_as_each_protocol_does() -> None:
    results = [
        pair(source=2, rre=1.0, rte=3.0),  # turned well, 3 m away
        pair(source=3, rre=9.0, rte=1.0),
        pair(source=4, rre=2.0, rte=0.5),
        pair(source=5, rre=nan, rte=nan),
    ]
    each = summarize(results, protocol("fcgf", "kitti"))
    assert (each.rre, each.rte) == (pytest.approx(1.5), pytest.approx(0.75))
    joint = summarize(results, protocol("geotransformer", "kitti"))
    assert (joint.rre, joint.rte) == (2.0, 0.5)
    every = summarize(results, protocol("strict", "kitti"))
    assert (every.rre, every.rte) == (pytest.approx(4), pytest.approx(1.5))
    assert joint.rr == 0.25
    assert joint.no_estimate == 1


def test_pairs_without_correspondences_fail_and_are_told() -> None:
    results = [pair(source=2), pair(source=3, rmse=nan)]
    summary = summarize(results, protocol("predator", "threedmatch"))
    assert (summary.rr, summary.unjudged) == (0.5, 1)
    kitti = summarize(results, protocol("fcgf", "kitti"))
    assert (kitti.rr, kitti.unjudged) == (1.0, 0)


def test_what_would_be_wrong_is_refused() -> None:
    rules = protocol("predator", "threedmatch")
    with pytest.raises(ValueError, match="occurs twice"):
        summarize([pair(), pair()], rules)
    with pytest.raises(ValueError, match=r"gt\.info"):
        summarize([pair(rmse=nan)], rules)


def test_every_pair_has_a_line_and_what_does_not_exist_is_empty(tmp_path: Path) -> None:
    one = PairResult("a", 0, 3, 1.0, 0.05, inlier_ratio=0.2)
    given = {
        250: [one, replace(one, target=1, rre=90.0, index=1)],
        None: [PairResult("b", 1, 2, nan, nan, 0.5, nan, 7, 3, seconds=0.25)],
    }
    path = write_pair_table(tmp_path / "pairs.csv", given, protocol("strict", "threedmatch"))
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["samples"], row["success"]) for row in rows] == [
        ("250", "1"), ("250", "0"), ("all", "0"),
    ]  # fmt: skip
    assert [row["rre_deg"] for row in rows] == ["1", "90", ""]
    assert [row["seconds"] for row in rows] == ["", "", "0.2500"]
