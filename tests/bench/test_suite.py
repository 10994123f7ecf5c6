from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pcnn.bench.mapping.figures import FIGURES
from pcnn.bench.rows import Header, Row, read_rows, write_rows
from pcnn.bench.suite import chosen_figures, draw, join, kept, merged, some, stand_ins, title_of

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


def test_other_layers_dtypes_and_networks_stay() -> None:
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


def test_charts_stand_beside_their_file(tmp_path: Path) -> None:
    rows = [row("spira_fig12", n) for n in (1000, 2000)]
    rows += [row("minuet_fig18", params={"B": 64, "C": 128})]
    path = write_rows(tmp_path / "mapping-cpu.json", HEADER, rows)
    names = [file.name for file in draw(path, FIGURES)]
    assert names == ["mapping-cpu-spira_fig12-table.png", "mapping-cpu-minuet_fig18.png"]
    assert all((tmp_path / name).is_file() for name in names)


def test_titles_name_some_of_many() -> None:
    assert some(["a", "b", "c", "d"]) == "a, b, c, d"
    assert some(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"
