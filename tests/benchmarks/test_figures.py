"""Every figure runs on a CPU at 200 voxels, is checked, and names what it measured."""

from __future__ import annotations

import pytest
import torch
import yaml

from benchmarks import latency, layers, maps, nets, networks, run
from benchmarks.__main__ import figures
from benchmarks.measured import Trace
from benchmarks.report import PAPERS
from benchmarks.rows import identity
from pcnn.runtime.timing import Call
from tests.benchmarks.small import SCENES, left_out, options

CLAIMS = [
    claim for paper in yaml.safe_load(PAPERS.read_text())["papers"] for claim in paper["claims"]
]
OF_PAPERS = dict.fromkeys(claim["figure"] for claim in CLAIMS if "figure" in claim)
FEWER = {"models": ["sparse_resnet"], "shapes": ["4:6:3,4:6:2:2"]}
#: Open3D needs libraries of the system that a machine may lack.


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for script in (latency, layers, maps, networks):
        monkeypatch.setattr(script, "scenes", lambda *_: SCENES)
    monkeypatch.setattr(nets, "DRAWS", 1)
    for script in (run, networks):  # the profiler takes a second a call
        monkeypatch.setattr(script, "trace", traced)


def traced(call: Call, device: torch.device) -> Trace:
    call()
    return Trace(tuple((name, 1.0) for name in ("sort", "search", "gather", "gemm", "scatter")))


@pytest.mark.parametrize("name", figures())
def test_a_figure_runs(name: str) -> None:
    given = options(**FEWER)
    rows = list(figures()[name](given, name))
    assert rows
    assert left_out(rows) == []
    assert {row["figure"] for row in rows} == {name}
    assert len({identity(row) for row in rows}) == len(rows), "rows that replace each other"


def test_the_papers_figures_are_kept() -> None:
    assert len(OF_PAPERS) >= 35
    assert set(OF_PAPERS) <= set(figures())


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: str(claim["claim"])[:30])
def test_a_claim_is_shown_or_said_to_be_absent(claim: dict[str, str]) -> None:
    assert len({"figure", "page", "absent"} & set(claim)) == 1
    assert "why" in claim or "absent" in claim
