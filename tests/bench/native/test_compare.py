from __future__ import annotations

import pytest
from rich.console import Console

from pcnn.bench.native.compare import compare, comparison_table
from pcnn.bench.rows import Row

LAYER = {"workload": "room002", "k": 3, "c_in": 64, "c_out": 128}
PEERS = [
    {"engine": "pointelligence", "what": "radius", "workload": "room002", "k": 3, "wall_ms": 3.0},
    {"engine": "pointelligence", "what": "train", **LAYER, "dtype": "fp16", "wall_ms": 2.0},
    {"engine": "spconv", "what": "train", **LAYER, "dtype": "fp16", "wall_ms": 0.1},
]


def ours(what: str, wall: float, **other: object) -> Row:
    words: dict[str, object] = {"engine": "native", "dtype": "float16", **LAYER}
    figure = "native_triplets" if what == "radius" else "native_layers"
    if what == "radius":
        words |= {"c_in": None, "c_out": None, "product": "train", "dtype": None}
    return Row(what, figure=figure, wall_ms=wall, checked=True, **words | other)


def test_only_the_official_code_and_all_layouts_count() -> None:
    rows = [
        ours("radius", 1.0),
        ours("radius", 0.1, product="pairs"),
        ours("train", 1.5, run=0),
        ours("train", 1.25, run=1),
        ours("train", 9.0, engine="pointcnnpp"),
        ours("train", 0.1, engine="voxel"),
        ours("train", 0.1, dtype="float32"),
    ]
    found = {entry.place: entry for entry in compare(rows, PEERS)}
    maps = found["room002", "radius", 3, None, None, "native"]
    layers = found["room002", "train", 3, 64, 128, "native"]
    papers = found["room002", "train", 3, 64, 128, "pointcnnpp"]
    assert len(found) == 3
    assert (maps.wall_ratio, maps.aim, maps.met) == (3.0, 1.5, True)
    assert (layers.wall_ratio, layers.aim, layers.met) == (pytest.approx(1.6), 2.0, False)
    assert (papers.aim, papers.met) == (None, True)


def test_the_table_says_whether_the_aim_is_met() -> None:
    console = Console(width=200, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    rows = [ours("radius", 1.0), ours("train", 1.5)]
    console.print(comparison_table(compare(rows, PEERS), "a GPU", "another"))
    text = console.export_text()
    assert "yes" in text
    assert "NO" in text
    assert "geometric mean of 1" in text
