"""Solvers on the same matches: checked, timed, judged; a package that may be missing."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from pcnn.bench.charts import charts
from pcnn.bench.solvers import kiss_matcher as adapter
from pcnn.bench.solvers.figures import FIGURES, SolversSetting
from pcnn.bench.solvers.lines import LINES, OWN, Line, lines_on, made_pair
from pcnn.bench.solvers.pairs import matched_pairs
from pcnn.metrics.registration.bootstrap import mean_with_other_scenes
from pcnn.registration.register import default_settings
from pcnn.registration.rigid_fit import weighted_svd
from tests.bench.settings import left_out, rows_of

CPU = torch.device("cpu")
SETTINGS = default_settings(0.05)


def setting(lines: list[Line]) -> SolversSetting:
    right = made_pair(0.3, 0.075)
    wrong = replace(right, scene="other", truth=right.truth.inverse())
    return SolversSetting(
        device="cpu",
        repeats=3,
        budget=0.01,
        pairs={"simulated rooms, 3DMatch": [right, wrong]},
        lines=lines,
        distance=0.075,
        about={"samples": 400},
    )


def test_every_solver_is_checked_timed_and_judged() -> None:
    rows = rows_of(FIGURES, "solvers", setting(lines_on(OWN, SETTINGS, CPU)))
    assert not left_out(rows)
    assert [row.engine for row in rows] == list(OWN)
    for row in rows:
        said: Any = row.params
        assert (row.what, row.n, row.checked) == ("solver", 400, True)
        assert (said["pairs"], said["scenes"], said["samples"]) == (2, 2, 400)
        assert 0 < row.min_ms <= row.wall_ms <= row.p95_ms
        assert 0 <= row.host_ms <= said["host_p95_ms"] + 1e-3
        if row.engine != "svd":  # most of these matches are wrong
            assert (said["rr"], said["rr_low"], said["rr_high"]) == (50.0, 0.0, 100.0)
            assert said["rre_deg"] < 1
            assert said["rte_m"] < 0.05
    drawn = charts(FIGURES[0].views, rows)
    assert [chart.suffix for chart in drawn] == ["rr", "time", "cores"]
    for chart in drawn:
        assert list(chart.panels[0].series) == list(OWN)


def test_a_wrong_solver_is_not_timed() -> None:
    right = made_pair(1.0, 0.075)
    mirrored = right.truth.clone()
    mirrored[0] *= -1
    for answer, message in (
        (None, "found no transform"),
        (torch.eye(4, dtype=torch.float64), "off by"),
        (mirrored, "not rigid"),
    ):
        line = Line("ransac", CPU, lambda pair, answer=answer: answer)
        (row,) = rows_of(FIGURES, "solvers", setting([line]))
        assert message in left_out([row])[0]
        assert row.wall_ms is None


def test_a_package_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kiss_matcher", None)
    monkeypatch.setattr("pcnn.bench.installed.find_spec", lambda _: None)
    with pytest.raises(ValueError, match=r"pip install kiss-matcher \(licence: MIT\)"):
        lines_on(LINES, SETTINGS, CPU)


def test_the_package_is_given_the_matches(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    class Matcher:
        def __init__(self, config: Any) -> None:
            seen.append(config)

        def prune_and_solve(self, source: list[Any], target: list[Any]) -> Any:
            sides = (torch.from_numpy(np.stack(side)).double() for side in (source, target))
            found = weighted_svd(*sides).numpy()
            valid = len(source) > 3
            return SimpleNamespace(rotation=found[:3, :3], translation=found[:3, 3:], valid=valid)

    package = SimpleNamespace(KISSMatcherConfig=lambda voxel_size: voxel_size, KISSMatcher=Matcher)
    monkeypatch.setattr(adapter, "modules_of", lambda *_: [package])
    solve = adapter.kiss_matcher(0.05)
    pair = made_pair(1.0, 0.075)
    found = solve(pair.source, pair.target)
    assert isinstance(found, Tensor)
    torch.testing.assert_close(found, pair.truth, atol=0.01, rtol=0)
    assert seen == [0.05]
    assert solve(pair.source[:3], pair.target[:3]) is None, "not valid"
    assert solve(pair.source[:2], pair.target[:2]) is None
    (line,) = lines_on(["kiss-matcher"], SETTINGS, CPU)
    (row,) = rows_of(FIGURES, "solvers", setting([line]))
    assert "off by" in left_out([row])[0], "one fit to all matches fails the check of others"


def test_a_list_without_pairs_is_named() -> None:
    data: Any = SimpleNamespace(name="3DLoMatch", pairs=[])
    descriptor: Any = None
    with pytest.raises(ValueError, match="3DLoMatch holds no pairs"):
        matched_pairs(data, descriptor, SETTINGS, 400, 5)


def test_an_interval_over_scenes_draws_scenes() -> None:
    scenes = np.repeat(np.arange(8), 5)
    alike = mean_with_other_scenes((scenes % 2).astype(float), scenes)
    assert (alike.value, alike.pairs) == (0.5, 40)
    assert 0.1 < alike.low < 0.26
    assert 0.74 < alike.high < 0.9
    within = mean_with_other_scenes(np.tile([1.0, 1, 0, 0, 0], 8), scenes)
    assert (within.low, within.value, within.high) == pytest.approx((0.4, 0.4, 0.4))
