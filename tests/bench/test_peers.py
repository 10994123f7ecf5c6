from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from rich.console import Console

from pcnn.bench.peers import Peers, best_of_ours, compare, comparison_table, read_peers
from pcnn.bench.rows import Row
from pcnn.bench.versus import Best, geometric_mean, no_slower


def peer(engine: str, variant: str, gpu: float, wall: float, **other: object) -> dict[str, object]:
    row = {"what": "map", "engine": engine, "variant": variant, "workload": "street", "k": 3}
    return {**row, "stride": 1, "gpu_ms": gpu, "wall_ms": wall, **other}


def ours(engine: str, product: str, gpu: float | None, wall: float, **other: object) -> Row:
    words = {"product": product, "k": 3, "stride": 1, "cache": "warm", "checked": True, **other}
    return Row("map", "street", engine, gpu_ms=gpu, wall_ms=wall, **words)


PEERS = [
    peer("spira", "dataflow0", 0.05, 0.04),
    peer("torchsparse", "hashmap_on_the_fly", 0.14, 0.22),
    peer("spira", "dataflow1", 0.12, 0.10),
    peer("spconv", "MaskImplicitGemm", 0.17, 0.24),
    peer("spira", "sort_pack", 0.07, 0.09, k=0),
    peer("spira", "dataflow0", 0.01, 0.01, what="layer"),
    peer("spira", "dataflow0", 0.01, 0.01, workload="elsewhere"),
]


def test_the_slack_is_five_percent_or_two_microseconds() -> None:
    assert no_slower(0.105, 0.1)
    assert not no_slower(0.1051, 0.1)
    assert no_slower(0.012, 0.010)
    assert not no_slower(0.0121, 0.010)


def test_a_peers_time_is_the_smaller_of_its_two() -> None:
    (found,) = compare([ours("z_delta", "table", 0.02, 0.05)], PEERS)
    assert found.place == ("street", 3, 1, "table")
    assert (found.peer.name, found.peer.least) == ("spira dataflow0", 0.04)
    assert found.ratio == pytest.approx(2.0)
    assert found.wall_ratio == pytest.approx(0.8)
    assert found.no_slower


def test_a_call_that_waits_is_judged_by_its_wall_time() -> None:
    (found,) = compare([ours("sorted", "table", None, 0.08)], PEERS)
    assert found.ratio == pytest.approx(0.5)
    assert not found.no_slower


def test_ready_is_held_to_spiras_pairs_too() -> None:
    bar, best = sorted(compare([ours("z_delta", "ready", 0.12, 0.2)], PEERS), key=str)
    ready = {entry.place[3]: entry for entry in (bar, best)}
    assert ready["ready"].peer.name == "spconv MaskImplicitGemm"
    assert ready["ready"].no_slower
    assert ready["ready (bar)"].peer.name == "spira dataflow1"
    assert not ready["ready (bar)"].no_slower


def test_of_runs_and_builders_the_best_counts() -> None:
    rows = [
        ours("a", "table", 0.05, 0.9, run=0),
        ours("a", "table", 0.04, 0.8, run=1),
        ours("a", "table", 0.06, 0.7, run=2),
        ours("b", "table", 0.045, 0.1),
        ours("c", "table", 0.001, 0.001, cache="cold"),
        ours("d", "table", 0.001, 0.001, params={"B": 64}),
    ]
    (best,) = best_of_ours(rows).values()
    assert best == Best("a", 0.04, 0.7)


def test_generated_scenes_meet_peers_by_their_name() -> None:
    row = ours("a", "table", 0.5, 0.5)
    assert compare([row], PEERS)
    named = Row(**{**vars(row), "workload": "street (generated)"})
    assert compare([named], PEERS)


def test_means_are_geometric() -> None:
    assert geometric_mean([0.5, 2.0, 8.0]) == pytest.approx(2.0)
    assert math.isnan(geometric_mean([]))


def test_the_table_names_ratios_and_the_mean() -> None:
    rows = [ours("z_delta", "table", 0.02, 0.05), ours("z_delta", "pairs", 0.2, 0.3)]
    console = Console(width=200, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(comparison_table(compare(rows, PEERS), "a CPU", "a GPU"))
    text = console.export_text()
    assert "ours on a CPU against the best peer on a GPU" in text
    assert "geometric mean of 1" in text
    assert "2.00" in text
    assert "NO" in text
    assert "1 of 1" in text
    assert "0 of 1" in text


def test_peers_are_read_from_their_file(tmp_path: Path) -> None:
    path = tmp_path / "peers.json"
    path.write_text(json.dumps({"header": {"device": "GPU"}, "rows": PEERS}))
    assert read_peers(path) == Peers("GPU", PEERS)
    for text in ("", "[]", '{"rows": []}', '{"header": {"device": "GPU"}, "rows": [1]}'):
        path.write_text(text)
        with pytest.raises(ValueError, match="not a file of peers"):
            read_peers(path)
    with pytest.raises(ValueError, match="not a file of peers"):
        read_peers(tmp_path / "absent.json")
