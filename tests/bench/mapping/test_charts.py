from __future__ import annotations

from pathlib import Path

import pytest

from pcnn.bench.charts import (
    Chart,
    Panel,
    Point,
    bars_of,
    in_short,
    render,
    stacked_by,
    time_of,
)
from pcnn.bench.mapping.charts import over_size
from pcnn.bench.rows import Row


def row(n: int = 1000, engine: str = "windowed", **other: object) -> Row:
    words = {"product": "table", "k": 3, "stride": 1, "wall_ms": 1.0, "checked": True, **other}
    return Row("map", f"scan_{n}", engine, n=n, **words)


def staged(n: int, stage: str, spent: float, engine: str = "windowed", **other: object) -> Row:
    params = {"stage": stage}
    return row(n, engine, wall_ms=None, gpu_busy_ms=spent, params=params, **other)


def test_the_time_of_a_row_is_the_gpus_where_there_is_one() -> None:
    assert time_of(row(gpu_ms=0.5, launches=3)) == Point(1000, 0.5)
    assert time_of(row()) == Point(1000, 1.0), "a CPU has wall time alone"
    waits = time_of(row(syncs=1, launches=3))
    assert waits == Point(1000, 1.0, hollow=True)
    assert time_of(staged(1000, "search", 0.2)) == Point(1000, 0.2)
    assert time_of(Row("map", "scan", "windowed", params={"left_out": "error"})) is None


def test_a_chart_a_product_a_panel_a_kernel_a_line_a_builder() -> None:
    rows = [
        row(n, engine, product=product, k=k, wall_ms=float(n + k))
        for product in ("table", "pairs")
        for k in (3, 5)
        for engine in ("windowed", "hash_table")
        for n in (1000, 2000)
    ]
    table, pairs = over_size(rows)
    assert (table.suffix, pairs.suffix) == ("table", "pairs")
    assert [panel.title for panel in table.panels] == ["K = 3, stride 1", "K = 5, stride 1"]
    assert dict(table.panels[1].series) == {
        "windowed": [Point(1000, 1005.0), Point(2000, 2005.0)],
        "hash_table": [Point(1000, 1005.0), Point(2000, 2005.0)],
    }
    assert table.panels[0].log


def test_a_cold_cache_is_a_line_of_its_own() -> None:
    (chart,) = over_size([row(cache="warm"), row(cache="cold", wall_ms=2.0)])
    assert list(chart.panels[0].series) == ["windowed", "windowed, cold cache"]


def test_of_several_runs_the_least_is_drawn() -> None:
    rows = [row(wall_ms=spent, run=number) for number, spent in enumerate((3.0, 1.0, 2.0))]
    (chart,) = over_size(rows)
    assert chart.panels[0].series["windowed"] == [Point(1000, 1.0)]


def test_what_was_left_out_is_not_drawn() -> None:
    absent = Row("map", "a", "b", product="table", n=3, params={"left_out": "error"})
    assert over_size([absent]) == []
    assert bars_of("B")([absent]) == []


def test_stages_are_stacked_at_the_largest_scan() -> None:
    rows = [
        staged(n, stage, float(n))
        for n in (1000, 2000)
        for stage in ("prepare", "search", "finish")
    ]
    (chart,) = over_size(rows)
    assert chart.suffix == "stages"
    (panel,) = chart.panels
    assert panel.kind == "stacked"
    assert panel.series["search"] == [Point("windowed", 2000.0)]
    assert list(panel.series) == ["sort, pack, hash", "search", "post-processing"]


def test_one_stage_is_drawn_over_size_with_its_hits_and_with_sorting() -> None:
    rows = [
        staged(1000, "search", 0.1, l2_hit_percent=97.0),
        staged(2000, "search", 0.2, l2_hit_percent=95.0),
    ]
    times, hits = over_size(rows)
    assert times.panels[0].series["windowed"] == [Point(1000, 0.1), Point(2000, 0.2)]
    assert hits.panels[0].series["windowed"] == [Point(1000, 97.0), Point(2000, 95.0)]
    assert not hits.panels[0].log
    sorting = row(1000, "pack_and_sort", product=None, k=None, stride=None, gpu_ms=0.3)
    sorting = Row(**{**vars(sorting), "params": {"stage": "prepare"}})
    (chart,) = over_size([sorting, staged(1000, "prepare", 0.4, "hash_table")])
    (panel,) = chart.panels
    assert set(panel.series) == {"pack_and_sort", "hash_table"}


def test_bars_carry_their_settings_as_labels() -> None:
    rows = [row(params={"B": b, "C": 128}, wall_ms=float(b)) for b in (64, 256)]
    (chart,) = bars_of("B", "C")(rows)
    (panel,) = chart.panels
    assert panel.series["windowed"] == [Point("64\n128", 64.0), Point("256\n128", 256.0)]
    assert bars_of("B")([]) == []


def test_parts_are_stacked() -> None:
    rows = [
        row(params={"step": step, "part": part}, wall_ms=spent)
        for step, part, spent in (("a", "sites", 1.0), ("a", "search", 2.0), ("b", "search", 1.5))
    ]
    (chart,) = stacked_by("part", "step")(rows)
    (panel,) = chart.panels
    assert panel.series == {
        "sites": [Point("a", 1.0)],
        "search": [Point("a", 2.0), Point("b", 1.5)],
    }


@pytest.mark.parametrize("kind", ["lines", "bars", "stacked"])
@pytest.mark.parametrize("panels", [1, 4])
def test_a_picture_is_written(kind: str, panels: int, tmp_path: Path) -> None:
    drawn = []
    for number in range(panels):
        panel = Panel(f"panel {number}", kind, "time [ms]")
        for place, label in enumerate(("a", "b")):
            x = (1000.0, 2000.0) if kind == "lines" else ("one", "two")
            panel.series[label] = [Point(x[0], 0.1 + place), Point(x[1], 0.3, hollow=place == 1)]
        drawn.append(panel)
    path = render(Chart("x", "about", drawn), "title\n" + "words " * 60, tmp_path / "new" / "a.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert path.stat().st_size > 5000


@pytest.mark.parametrize(
    ("value", "shown"),
    [(500, "500"), (2000, "2,000"), (5e5, "500 k"), (1e6, "1 M"), (2e8, "200 M")],
)
def test_sizes_on_an_axis_are_short(value: float, shown: str) -> None:
    assert in_short(value) == shown
