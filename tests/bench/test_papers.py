"""Claims of the papers: the page is what the command writes; numbers are read off rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pcnn.bench.papers.claims import Claim
from pcnn.bench.papers.page import PAPERS, claimed, measured_figures, page
from pcnn.bench.papers.plan import jobs, was_cut
from pcnn.bench.papers.readings import AHEAD, Best, Counts, Mean, Ratio, Share
from pcnn.bench.rows import Header, Row, write_rows
from pcnn.bench.suite import until
from pcnn.cli.suites import SUITES, figures_of
from pcnn.geometry.row_lists import stored_steps
from pcnn.geometry.slot_tiles import TILE_ROWS

ROOT = Path(__file__).parents[2]
SUITE_FIGURES = {name: (kind, figures_of(name)) for name, (kind, *_) in SUITES.items()}
HEADER = Header("device", "2", "abc", "2026-01-01")
FIG8 = {"engine": "minuet"}, {"engine": "spira"}


def row(engine: str, wall: float, busy: float | None = None, **other: Any) -> Row:
    params = {"mode": "infer", **other.pop("params", {})}
    one = Row("network", "scan", engine, dtype="float16", model="net", figure="spira_fig8")
    times = {"wall_ms": wall, "gpu_busy_ms": busy, "checked": True}
    return replace(one, params=params, **times | other)


def test_the_page_is_what_the_command_writes() -> None:
    written = (ROOT / "docs/results/papers.md").read_text()
    assert page(ROOT / "benchmarks/results") == written, "pcnn bench claims writes it"


def test_every_claim_is_shown_or_says_why_not() -> None:
    known = {figure.name for _, own in SUITE_FIGURES.values() for figure in own}
    assert set(claimed()) <= known
    assert [paper.name for paper in PAPERS] == ["torchsparse", "minuet", "spira", "pointcnnpp"]
    parts = [(paper.name, claim.part) for paper in PAPERS for claim in paper.claims]
    assert len(parts) == len(set(parts))
    for claim in (claim for paper in PAPERS for claim in paper.claims if claim.figure):
        assert claim.readings, claim.part
        assert claim.why, claim.part
    with pytest.raises(ValueError, match="needs one of"):
        Claim(part="Fig. 1", claim="a claim")


def test_jobs_begin_with_whole_networks_in_the_first_dtype() -> None:
    found = jobs(SUITE_FIGURES)
    names = [job.name for job in found]
    assert names[:2] == ["spira_fig8-float16", "torchsparse_fig11-float16"]
    assert {"spira_fig8-tf32", "minuet_fig12-float32", "spira_fig12"} <= set(names)
    assert "spira_fig13-tf32" not in names
    assert [job.name for job in jobs(SUITE_FIGURES, ["minuet"], ["minuet_fig12"], ["tf32"])] == [
        "minuet_fig12-tf32"
    ]
    assert {job.dtype for job in jobs(SUITE_FIGURES, on_gpu=False)} == {None, "float32"}
    with pytest.raises(ValueError, match="no figure spira_fig8; there are"):
        jobs(SUITE_FIGURES, ["minuet"], ["spira_fig8"])
    with pytest.raises(ValueError, match="no paper mine; there are torchsparse"):
        jobs(SUITE_FIGURES, ["mine"])


def test_a_figure_that_is_cut_says_so() -> None:
    rows = list(until(iter([row("a", 1.0), row("b", 1.0)]), 0.0, "spira_fig8"))
    assert [one.engine for one in rows] == ["a", "rest"]
    assert was_cut(rows)
    assert not was_cut(list(until(iter([row("a", 1.0)]), 9.0, "spira_fig8")))


def test_a_ratio_is_of_the_quickest_at_the_same_place() -> None:
    rows = [
        row("minuet", 8.0, 4.0),
        row("minuet", 6.0, 4.0, run=1),
        row("spira", 2.0, 2.0, params={"variant": "a"}),
        row("spira", 3.0, 1.0, params={"variant": "b"}),
        row("minuet", 5.0, workload="other"),
    ]
    ratio = Ratio("minuet / spira", *FIG8, 4.0, apart=("variant",))
    assert ratio.of(rows) == "minuet / spira: in kernels 4.00×, by the wall 3.00×"
    assert ratio.verdict(rows) == "agrees"
    rows += [row("spira", 20.0, 16.0, workload="other")]
    assert "by the wall 0.87× (0.25 to 3.00, 2 places)" in ratio.of(rows)
    by_wall = replace(ratio, clock="wall")
    assert (ratio.verdict(rows), by_wall.verdict(rows)) == ("agrees", "reversed")
    assert replace(by_wall, printed=AHEAD).verdict(rows[:4]) == "agrees"
    assert replace(ratio, printed=1.5).verdict(rows) == "more"
    assert replace(ratio, printed=40.0).verdict(rows) == "less"
    assert (ratio.of(rows[:2]), ratio.verdict(rows[:2])) == ("", "")


def test_parts_add_up_at_a_place() -> None:
    parts = {"gather": (1.0, 1.0), "scatter": (3.0, 1.0)}
    rows = [
        replace(row(engine, 9.0, spent), params={"part": part}, wall_ms=None)
        for part, times in parts.items()
        for engine, spent in zip(("minuet", "spira"), times, strict=True)
    ]
    assert Ratio("", *FIG8, summed="part").of(rows) == ": in kernels 2.00×"
    shares = Share("minuet", {"engine": "minuet"})
    assert shares.of(rows) == "minuet: gather 25 %, scatter 75 %"


def test_means_bests_and_counts_are_in_words() -> None:
    rows = [row("a", 1.0, params={"t": t}, memory_mb=mb) for t, mb in ((0, 10.0), (3, 20.0))]
    assert Mean("peak", "memory_mb", unit="MiB").of(rows) == "peak: 15 MiB (10 to 20)"
    assert Mean("peak", "memory_mb", {"t": 3}, largest=True).of(rows) == "peak: 20"
    assert Mean("peak", "l2_hit_percent").of(rows) == ""
    slower = replace(rows[0], wall_ms=0.5)
    assert Best("quickest", "t").of([*rows, slower]) == "quickest: 0 at 1 place"
    rows = [replace(one, params={"t": f"t = {one.wall_ms}", "layers": 4}) for one in rows]
    assert Counts("t", "layers").of(rows[:1]) == "net on scan: t = 1.0 4"


def test_the_memory_of_a_layer_is_that_of_its_tensors() -> None:
    """Memory of inference with a new map, counted from shapes: 200,000 points, 64 -> 128."""
    rows = measured_figures(ROOT / "benchmarks/results")["pointcnnpp_fig3"].rows
    n, k, tiles = 200_000, 27, -(-200_000 // TILE_ROWS)
    out, ranges = 2 * 128 * n, 4 * TILE_ROWS * tiles * (k + 2)
    found = 0
    for one in rows:
        if one.what != "map+layer" or one.n != n or one.triplets is None:
            continue
        steps = 4 * (TILE_ROWS + 1) * stored_steps(one.triplets, tiles, k)
        triplets = 16 * one.triplets + 8 * n
        bytes_of = {
            "voxel": out + 4 * k * n + ranges - 4 * TILE_ROWS * tiles + 4 * n + 4 * k * tiles,
            "native": out + triplets + ranges + steps,
            "pointcnnpp": out + 2 * out + triplets,
        }
        if one.engine in bytes_of:
            assert one.memory_mb == pytest.approx(bytes_of[one.engine] / 2**20, rel=0.01)
            found += 1
    assert found >= 9


def test_rows_of_a_run_over_the_papers_come_before_other_files(tmp_path: Path) -> None:
    write_rows(tmp_path / "networks-figures-x.json", HEADER, [row("minuet", 9.0)])
    (tmp_path / "other.json").write_text("[]")
    assert len(measured_figures(tmp_path)["spira_fig8"].rows) == 1
    (tmp_path / "papers-x").mkdir()
    for dtype in ("float16", "tf32"):
        rows = [replace(row(engine, 2.0), dtype=dtype) for engine in ("minuet", "spira")]
        write_rows(tmp_path / "papers-x" / f"spira_fig8-{dtype}.json", HEADER, rows)
    found = measured_figures(tmp_path)["spira_fig8"]
    assert len(found.files) == 2
    assert {one.dtype for one in found.rows} == {"float16", "tf32"}
    text = page(tmp_path)
    assert "minuet / spira: by the wall 1.00×<br>tf32: minuet / spira: by the wall 1.00×" in text
    assert "`spira_fig16`: not measured" in text
