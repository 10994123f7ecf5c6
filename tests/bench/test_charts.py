"""Rows as charts: committed result files, the fields of a view, and the pictures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pcnn.bench.appearance import AUTHORS, METHODS, looks
from pcnn.bench.charts import Chart, Panel, Point, View, charts, time_of
from pcnn.bench.data.figures import FIGURES as DATA
from pcnn.bench.drawing import in_short
from pcnn.bench.peers import NETWORKS, read_peers
from pcnn.bench.render import render
from pcnn.bench.rows import Row, read_rows
from pcnn.cli.suites import figures_of

FIGURES = figures_of()
RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
#: Recorded times of other engines' own code, which committed charts show.
PEERS = read_peers(RESULTS.parent / "peers" / "h200.json").rows
#: Files of other programs: no rows of `pcnn bench`.
OTHERS = (
    "before-and-after-h200",
    "compat-h200",
    "dense-plans-h200",
    "devices-h200",
    "gaps-h200",
    "graphs-h200",
    "host-h200",
    "paper-engines-h200",
    "paper-graphs-h200",
    "parity-h200",
    "ransac-h200",
    "recipes-h200",
    "register-h100",
    "spira-thresholds-h200",
    "start-h200",
    "statistics-streets",
)
FILES = sorted(path for path in RESULTS.glob("*.json") if path.stem not in OTHERS)
LINES = View("time", "n", "engine_cache", "kernel", "product", kind="lines", log=True)


def row(n: int = 1000, engine: str = "windowed", **other: object) -> Row:
    fields = {"product": "table", "k": 3, "stride": 1, "wall_ms": 1.0, "checked": True, **other}
    return Row("map", f"scan_{n}", engine, n=n, **fields)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_committed_file_is_read_and_has_the_charts_beside_it(path: Path) -> None:
    _, rows = read_rows(path)
    assert rows
    assert {row.figure for row in rows} <= {figure.name for figure in (*FIGURES, *DATA)}
    names = set()
    for figure in FIGURES:
        own = [row for row in rows if row.figure == figure.name]
        for chart in charts(figure.views, own, PEERS):
            drawn = looks(dict.fromkeys(label for one in chart.panels for label in one.series))
            told_apart = {(look.color, look.marker) for look in drawn.values()}
            assert len(told_apart) == len({label.partition(", up to")[0] for label in drawn})
            suffixes = filter(None, (path.stem, figure.name, chart.suffix))
            names.add("-".join(suffixes))
            assert all(point for panel in chart.panels for point in panel.series.values())
    stems = {file.stem for file in RESULTS.glob("*.png") if file.stem.startswith(f"{path.stem}-")}
    longer = [other.stem for other in FILES if other.stem.startswith(f"{path.stem}-")]
    assert names == {name for name in stems if not name.startswith(tuple(longer))}


def test_committed_values_are_drawn_where_they_belong() -> None:
    """Of one figure a chart: how many panels and series it has, and one of its heights."""
    _, rows = read_rows(RESULTS / "mapping-h200.json")
    (figure,) = [figure for figure in FIGURES if figure.name == "minuet_fig17"]
    own = [row for row in rows if row.figure == figure.name]
    (chart,) = charts(figure.views, own)
    (panel,) = chart.panels
    assert set(panel.series) == {"pack_and_sort", "hash_table", "hash_runs"}
    for series, points in panel.series.items():
        times = {row.n: time_of(row).y for row in own if row.engine == series and row.params}
        assert {point.x: point.y for point in points} == times


def test_the_time_of_a_row_is_the_gpus_where_there_is_one() -> None:
    assert time_of(row(gpu_ms=0.5, launches=3)) == Point(1000, 0.5)
    assert time_of(row()) == Point(1000, 1.0), "a CPU has wall time alone"
    assert time_of(row(syncs=1, launches=3)) == Point(1000, 1.0, hollow=True)
    of_stage = row(wall_ms=None, gpu_busy_ms=0.2, gpu_ms=0.1, params={"stage": "search"})
    assert time_of(of_stage) == Point(1000, 0.2)
    assert time_of(Row("map", "scan", "windowed", params={"left_out": "error"})) is None


def test_names_of_fields_choose_chart_panel_series_and_place() -> None:
    rows = [
        row(n, engine, product=product, k=k, wall_ms=float(n + k))
        for product in ("table", "pairs")
        for k in (3, 5)
        for engine in ("windowed", "hash_table")
        for n in (1000, 2000)
    ]
    table, pairs = charts([LINES], [*rows, Row("map", "a", "b", product="ready", n=3)])
    assert (table.suffix, pairs.suffix) == ("table", "pairs")
    assert [panel.title for panel in table.panels] == ["K = 3, stride 1", "K = 5, stride 1"]
    assert dict(table.panels[1].series) == {
        "windowed": [Point(1000, 1005.0), Point(2000, 2005.0)],
        "hash_table": [Point(1000, 1005.0), Point(2000, 2005.0)],
    }
    (chart,) = charts([LINES], [row(cache="warm"), row(cache="cold", wall_ms=2.0)])
    assert list(chart.panels[0].series) == ["windowed", "windowed, cold cache"]
    (chart,) = charts([LINES], [row(wall_ms=spent, run=n) for n, spent in enumerate((3.0, 1.0))])
    assert chart.panels[0].series["windowed"] == [Point(1000, 1.0)], "the least of the runs"
    bars = [row(params={"B": b, "C": 128}, wall_ms=float(b)) for b in (64, 256)]
    (chart,) = charts([View("time", "B C", "engine", "workload")], bars)
    assert chart.panels[0].series["windowed"] == [Point("64\n128", 64.0), Point("256\n128", 256.0)]


def test_views_of_one_suffix_share_panels_and_rows_without_one_belong_to_all() -> None:
    rows = [row(floor_ms=0.5), row(2000, k=5, floor_ms=0.25), row(engine="sort", k=None)]
    views = [LINES, View("floor_ms", "n", "=floor", "kernel", "product", kind="lines")]
    (chart,) = charts(views, rows)
    assert [list(panel.series) for panel in chart.panels] == 2 * [["windowed", "floor", "sort"]]


def test_a_view_draws_the_largest_scene_or_means_over_rooms() -> None:
    stages = [
        row(n, wall_ms=None, gpu_busy_ms=float(n), params={"stage": stage})
        for n in (1000, 2000)
        for stage in ("prepare", "search")
    ]
    (chart,) = charts([View("time", "engine", "stage_name", "kernel", largest=True)], stages)
    assert chart.panels[0].series["search"] == [Point("windowed", 2000.0)]
    assert list(chart.panels[0].series) == ["sort, pack, hash", "search"]
    rooms = [row(n, wall_ms=wall, params={"points": 1000}) for n, wall in ((990, 1.0), (1010, 2.0))]
    (chart,) = charts([View("wall_ms", "n", "engine", "title", kind="lines", mean=True)], rooms)
    assert chart.panels[0].series["windowed"] == [Point(1000, 1.5)]


def test_recorded_times_and_lower_bounds_stand_beside_ours() -> None:
    ours = Row(
        *("network", "scan", "auto"),
        **{"dtype": "float16", "model": "minkunet", "wall_ms": 2.0, "floor_ms": 0.5},
        **{"params": {"mode": "infer"}, "checked": True},
    )
    theirs = {"what": "network", "workload": "scan", "model": "minkunet", "dtype": "fp16"}
    peers = [
        {**theirs, "engine": "spira", "variant": n, "wall_ms": w} for n, w in (("a", 8), ("b", 6))
    ]
    view = View("wall_ms", "workload", "engine", "model", kind="points", log=True, beside=NETWORKS)
    (chart,) = charts([view], [ours], peers)
    assert chart.panels[0].series == {
        "auto": [Point("scan", 2.0, floor=0.5)],
        f"spira{AUTHORS}": [Point("scan", 6.0)],
    }
    (chart,) = charts([LINES], [replace(row(floor_ms=0.5), what="map+layer")])
    assert chart.panels[0].series["windowed"][0].floor is None, "it is the layer's alone"


def test_a_method_has_one_colour_in_every_chart_and_no_other_takes_it() -> None:
    alone, among = looks(["auto"]), looks(["step", "auto", f"spira{AUTHORS}", "spira hybrid"])
    assert alone["auto"] == among["auto"] == METHODS["auto"]
    assert among[f"spira{AUTHORS}"].color == among["spira hybrid"].color == METHODS["spira"].color
    assert len({look.marker for look in among.values()}) == 4
    assert among["step"].color not in (METHODS["auto"].color, METHODS["spira"].color)
    many = looks([f"setting {n}" for n in range(30)])
    assert len({look.color for look in many.values()}) == 30


def test_bars_begin_at_zero() -> None:
    with pytest.raises(ValueError, match="begin at zero"):
        View("time", "layer", "engine", "workload", log=True)


@pytest.mark.parametrize("series", ["ab", "abcdef"])
def test_a_picture_is_written(series: str, tmp_path: Path) -> None:
    drawn = []
    for kind in ("lines", "points", "bars", "stacked"):
        panel = Panel(f"panel of {kind}", kind, "time [ms]")
        for place, label in enumerate(series):
            x = (1000.0, 2000.0) if kind == "lines" else ("one", "two")
            panel.series[label] = [
                Point(x[0], 0.1 + place, floor=0.01),
                Point(x[1], 0.3, hollow=place == 1),
            ]
        drawn.append(panel)
    path = render(Chart("x", "about", drawn), "title\n" + "words " * 60, tmp_path / "new" / "a.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert path.stat().st_size > 5000
    sizes = {500: "500", 2000: "2,000", 5e5: "500 k", 1e6: "1 M"}
    assert {size: in_short(size) for size in sizes} == sizes
