from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pcnn.bench import suite
from pcnn.bench.charts import charts
from pcnn.bench.layers import grouping
from pcnn.bench.mapping.figures import FIGURES
from pcnn.bench.networks import cases
from pcnn.bench.networks import figures as networks
from pcnn.bench.rows import Header, Row, read_rows, write_rows
from pcnn.bench.scenes import load_scene
from pcnn.bench.setting import Precision
from pcnn.bench.suite import (
    Figure,
    chosen_figures,
    draw,
    join,
    kept,
    merged,
    some,
    stand_ins,
    title_of,
)
from pcnn.cli.suites import figures_of
from pcnn.dataflows.grouping import Adaptive
from tests.bench.settings import left_out, listed, of_layers, of_maps, of_networks, of_points

HEADER = Header(device="cpu", torch="2.6.0", revision="abc", date="2026-01-31")


def row(figure: str, n: int = 1000, **other: object) -> Row:
    words = {"product": "table", "k": 3, "stride": 1, "cache": "warm", "checked": True}
    words |= {"workload": "a", "engine": "b", "n": n, "figure": figure, "wall_ms": 1.0, **other}
    return Row("map", **words)


def test_figures_are_chosen_by_name() -> None:
    assert chosen_figures([], FIGURES) == list(FIGURES)
    assert [figure.name for figure in chosen_figures(["minuet_fig18"], FIGURES)] == ["minuet_fig18"]
    with pytest.raises(ValueError, match=r"no figure minuet_fig1; there are spira_fig12"):
        chosen_figures(["minuet_fig1"], FIGURES)


def test_rows_in_the_file_stay_if_device_and_commit_are_the_same(tmp_path: Path) -> None:
    path = tmp_path / "mapping.json"
    assert kept(path, HEADER) == []
    rows = [row("minuet_fig16"), row("minuet_fig17")]
    write_rows(path, HEADER, rows)
    assert kept(path, replace(HEADER, date="2027-01-01")) == rows
    for other in ({"device": "gpu"}, {"torch": "2.7.0"}, {"revision": "def"}):
        assert kept(path, replace(HEADER, **other)) == []


def test_what_is_measured_again_replaces_what_was() -> None:
    old = [row("minuet_fig16", engine=engine) for engine in "ab"]
    old += [row("minuet_fig17", engine="a"), row("minuet_fig16", engine="a", workload="other")]
    old += [row("minuet_fig16", engine="a", cache="cold")]
    new = [row("minuet_fig16", engine="a", product=product) for product in ("table", "pairs")]
    assert merged(old, new) == [*old[1:], *new]
    # other layers, dtypes and networks stay
    old = [row("layers", c_in=c, c_out=c, dtype="float16") for c in (16, 32)]
    old += [row("networks", model=model) for model in ("minkunet", "sparse_resnet")]
    assert merged(old, [old[0], old[2]]) == [old[1], old[3], old[0], old[2]]
    other = row("layers", c_in=16, c_out=16, dtype="tf32")
    assert merged(old, [other]) == [*old, other]
    left_out = row("layers", c_in=16, c_out=16, dtype="float16", wall_ms=None, cache=None)
    assert merged([left_out], [old[0]]) == [old[0]]


def test_files_are_joined(tmp_path: Path) -> None:
    first = write_rows(tmp_path / "a.json", HEADER, [row("minuet_fig16"), row("minuet_fig17")])
    header = replace(HEADER, after={"sm_mhz": 1980.0})
    second = write_rows(tmp_path / "b.json", header, [row("minuet_fig17", n=2000)])
    joined, rows = read_rows(join([first, second], tmp_path / "new" / "all.json", FIGURES))
    assert rows == [row("minuet_fig16"), row("minuet_fig17", n=2000)]
    assert joined.after == {"sm_mhz": 1980.0}
    assert joined.stand_ins["minuet_fig16"] == "a, in place of Semantic3D and random clouds"
    other = write_rows(tmp_path / "c.json", replace(HEADER, device="gpu"), rows)
    with pytest.raises(ValueError, match=r"c\.json is of gpu, torch 2\.6\.0, revision abc, but"):
        join([first, other], tmp_path / "none.json", FIGURES)
    assert not (tmp_path / "none.json").exists()


def test_a_title_names_the_device_and_what_stands_in() -> None:
    (figure,) = chosen_figures(["minuet_fig16"], FIGURES)
    rows = [row(figure.name, workload="surface_1k (generated)")]
    words = "surface_1k (generated), in place of Semantic3D and random clouds"
    header = replace(HEADER, stand_ins=stand_ins(rows, FIGURES))
    title = title_of(figure, header, rows, "stage search")
    for part in ("minuet_fig16", "stage search", "cpu", "torch 2.6.0", "warm cache", words):
        assert part in title
    assert "surface" not in title_of(figure, HEADER, [row(figure.name)], "")
    assert some(["a", "b", "c", "d"]) == "a, b, c, d"
    assert some(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"


def test_charts_stand_beside_their_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "render", lambda chart, title, file: file)
    rows = [row("spira_fig12", n) for n in (1000, 2000)]
    rows += [row("minuet_fig18", params={"B": 64, "C": 128})]
    path = write_rows(tmp_path / "mapping-cpu.json", HEADER, rows)
    names = ["mapping-cpu-spira_fig12-table.png", "mapping-cpu-minuet_fig18.png"]
    assert draw(path, FIGURES) == [tmp_path / name for name in names]


SETTINGS = {
    "layers": of_layers(),
    "mapping": of_maps(),
    "networks": of_networks(),
    "native": of_points("voxel", "native"),
}
#: On a GPU as small, but large enough for every kernel.
ON_GPU = {
    "layers": of_layers(device="cuda", dtype=Precision.float32),
    "mapping": of_maps(device="cuda", kernels="3:1,2:2", scenes=[load_scene("random_2k")]),
    "networks": of_networks(
        device="cuda", dtype=Precision.float16, model=["sparse_resnet", "minkunet"]
    ),
    "native": of_points(
        device="cuda", dtype=Precision.float16, size_list=[2000], largest=300, step=20
    ),
}
EVERY = [pytest.param(name, one, id=one.name) for name in SETTINGS for one in figures_of(name)]
NEEDS_CUDA = {"spira_fig11", "spira_fig14", "spira_table1", "torchsparse_fig13", "minuet_fig18"}
NEEDS_CUDA |= {"pointcnnpp_figJ"}
#: Measured by tests of their own: they cannot be listed alone.
MEASURED = {"native_memory", "native_step20m", "native_same_t"}


@pytest.mark.parametrize(("suite", "figure"), EVERY)
def test_the_cases_of_a_figure_are_listed_and_drawn(
    suite: str, figure: Figure, monkeypatch: pytest.MonkeyPatch
) -> None:
    if figure.name in MEASURED:
        return
    listed(monkeypatch)
    monkeypatch.setattr(grouping, "searched", lambda *_: Adaptive(0.25))
    monkeypatch.setattr(cases, "settle_norms", lambda network, x: None)
    monkeypatch.setattr(networks, "_quickest_tile", lambda *_: 4)
    rows = list(figure.measure(SETTINGS[suite], figure.name))
    assert bool(rows) == (figure.name not in NEEDS_CUDA)
    assert {row.figure for row in rows} <= {figure.name}
    assert not left_out(rows)
    if suite == "native":
        assert all("simulated" in row.workload for row in rows)
    assert bool(charts(figure.views, rows)) == bool(rows)


@pytest.mark.gpu
@pytest.mark.long
@pytest.mark.parametrize(("suite", "figure"), EVERY)
def test_a_figure_is_served_on_a_gpu(suite: str, figure: Figure) -> None:
    rows = list(figure.measure(ON_GPU[suite], figure.name))
    assert rows
    assert not left_out(rows)
    assert charts(figure.views, rows)
