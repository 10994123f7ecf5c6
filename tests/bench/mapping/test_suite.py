from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pcnn.bench.mapping.figures import FIGURES
from pcnn.bench.mapping.suite import chosen_figures, draw, kept, stand_in, title_of
from pcnn.bench.rows import Header, Row, write_rows
from pcnn.bench.scenes import Scene
from pcnn.geometry import grid_of_cells

HEADER = Header(device="cpu", torch="2.6.0", revision="abc", date="2026-01-31")
SCENE = Scene("surface_1k (generated)", grid_of_cells(torch.zeros(1, 3, dtype=torch.int64)))


def row(figure: str, n: int = 1000, **other: object) -> Row:
    words = {"product": "table", "k": 3, "stride": 1, "cache": "warm", **other}
    return Row("map", "a", "b", n=n, wall_ms=1.0, checked=True, figure=figure, **words)


def test_figures_are_chosen_by_name() -> None:
    assert chosen_figures([]) == list(FIGURES)
    assert [figure.name for figure in chosen_figures(["minuet_fig18"])] == ["minuet_fig18"]
    with pytest.raises(ValueError, match=r"no figure minuet_fig1; there are spira_fig12"):
        chosen_figures(["minuet_fig1"])


def test_rows_of_other_figures_stay_if_device_and_commit_are_the_same(tmp_path: Path) -> None:
    path = tmp_path / "mapping.json"
    assert kept(path, HEADER, ["minuet_fig16"]) == ({}, [])
    stand_ins = {"minuet_fig16": "a", "minuet_fig17": "b"}
    rows = [row("minuet_fig16"), row("minuet_fig17")]
    write_rows(path, replace(HEADER, stand_ins=stand_ins), rows)
    assert kept(path, HEADER, ["minuet_fig16"]) == ({"minuet_fig17": "b"}, rows[1:])
    for other in ({"device": "gpu"}, {"torch": "2.7.0"}, {"revision": "def"}):
        assert kept(path, replace(HEADER, **other), ["minuet_fig16"]) == ({}, [])


def test_a_title_names_the_device_and_what_stands_in() -> None:
    (figure,) = chosen_figures(["minuet_fig16"])
    words = stand_in(figure, [SCENE])
    assert words == "surface_1k (generated), in place of Semantic3D and random clouds"
    header = replace(HEADER, stand_ins={figure.name: words})
    title = title_of(figure, header, [row(figure.name)], "stage search")
    for part in ("minuet_fig16", "stage search", "cpu", "torch 2.6.0", "warm cache", words):
        assert part in title
    assert "surface" not in title_of(figure, HEADER, [row(figure.name)], "")


def test_charts_stand_beside_their_file(tmp_path: Path) -> None:
    rows = [row("spira_fig12", n) for n in (1000, 2000)]
    rows += [row("minuet_fig18", params={"B": 64, "C": 128})]
    path = write_rows(tmp_path / "mapping-cpu.json", HEADER, rows)
    names = [file.name for file in draw(path)]
    assert names == ["mapping-cpu-spira_fig12-table.png", "mapping-cpu-minuet_fig18.png"]
    assert all((tmp_path / name).is_file() for name in names)
