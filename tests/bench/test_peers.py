"""Places where peers and ours meet, and the times that count there."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from pcnn.bench.best_times import (
    Best,
    Comparer,
    Comparison,
    best_of_ours,
    best_of_peers,
    compare,
    comparison_table,
    geometric_mean,
    no_slower,
)
from pcnn.bench.layer_shape import LayerShape
from pcnn.bench.peers import (
    LAYERS,
    MAPS,
    NATIVE,
    NETWORKS,
    SAME_SIZE,
    Peers,
    compare_all,
    map_of,
    places_of,
    read_peers,
    same_size,
)
from pcnn.bench.rows import Row

LAYER = {"dtype": "float16", "k": 3, "stride": 1, "c_in": 16, "c_out": 16}


def peer(what: str, engine: str, variant: str, gpu: Any, wall: Any, **other: Any) -> dict[str, Any]:
    row = {"what": what, "engine": engine, "variant": variant, "workload": "street", "k": 3}
    row |= {"stride": 1, "gpu_ms": gpu, "wall_ms": wall}
    if what in ("layer", "train"):
        row |= {"dtype": "fp16", "c_in": 16, "c_out": 16}
    if what == "network":
        row |= {"dtype": "fp16", "model": "minkunet"}
    return row | other


def ours(what: str, engine: str, gpu: Any, wall: Any, **other: Any) -> Row:
    fields: dict[str, Any] = {"workload": "street", "cache": "warm", "checked": True}
    fields |= {"map": {"product": "table", "k": 3, "stride": 1}, "network": {}}.get(what, LAYER)
    if what == "network":
        fields |= {"model": "minkunet", "dtype": "float16", "params": {"mode": "infer"}}
    return Row(what, engine=engine, gpu_ms=gpu, wall_ms=wall, **fields | other)


MAP_PEERS = [
    peer("map", "spira", "dataflow0", 0.05, 0.04),
    peer("map", "torchsparse", "hashmap_on_the_fly", 0.14, 0.22),
    peer("map", "spira", "dataflow1", 0.12, 0.10),
    peer("map", "spconv", "MaskImplicitGemm", 0.17, 0.24),
    peer("map", "spira", "sort_pack", 0.07, 0.09, k=0),
    peer("layer", "spira", "dataflow0", 0.01, 0.01, dtype="int8"),
    peer("map", "spira", "dataflow0", 0.01, 0.01, workload="elsewhere"),
]
LAYER_PEERS = [
    peer("layer", "spconv", "MaskImplicitGemm", 0.025, 0.118, with_map_wall_ms=0.392),
    peer("layer", "spira", "dataflow0", 0.036, 0.052, with_map_wall_ms=0.083),
    peer("layer", "warpconvnet", "default", 0.7, 1.2, with_map_wall_ms=2.3),
    peer("map", "spira", "dataflow0", 0.043, 0.038),
    peer("map", "spconv", "MaskImplicitGemm", 0.173, 0.243),
    peer("train", "spconv", "MaskImplicitGemm", 0.2, 0.9, with_map_wall_ms=1.9),
]
NETWORK_PEERS = [
    peer("network", "spira", "artifact", None, 9.0),
    peer("network", "spira", "artifact", None, 8.0),
    peer("network", "spconv", "k>s keeps more outputs: NOT the same work", None, 1.0),
    peer("network", "torchsparse", "library default; k3s2 keeps more outputs", None, 1.0),
]
PLACE = ("street", "float16", 3, 16, 16, 1)


def shown(comparer: Comparer, found: list[Comparison]) -> str:
    console = Console(width=250, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(comparison_table(comparer, found, "a CPU", "a GPU"))
    return console.export_text()


def test_the_slack_is_five_percent_or_two_microseconds_and_means_are_geometric() -> None:
    for ours_ms, theirs_ms, wanted in (
        *((0.105, 0.1, True), (0.1051, 0.1, False)),
        *((0.012, 0.010, True), (0.0121, 0.010, False)),
    ):
        assert no_slower(ours_ms, theirs_ms) == wanted
    assert geometric_mean([0.5, 2.0, 8.0]) == pytest.approx(2.0)
    assert math.isnan(geometric_mean([]))


def test_ours_is_held_against_the_best_peer() -> None:
    dataflow, gemm, network = "spira dataflow0", "spconv MaskImplicitGemm", "spira artifact"
    generated = {"workload": "street (generated)"}
    for row, peers, name, ratio, wall_ratio in (
        (ours("map", "z_delta", 0.02, 0.05), MAP_PEERS, dataflow, 2.0, 0.8),
        (ours("map", "waits", None, 0.08), MAP_PEERS, dataflow, 0.5, 0.5),
        (ours("map", "a", 0.02, 0.05, **generated), MAP_PEERS, dataflow, 2.0, 0.8),
        (ours("layer", "a", 0.0125, 0.1), LAYER_PEERS, gemm, 2.0, 1.18),
        (ours("map+layer", "a", None, 0.148), LAYER_PEERS, dataflow, 0.5, 0.083 / 0.148),
        (ours("network", "auto", 0.1, 5.0), NETWORK_PEERS, network, 1.6, 1.6),
    ):
        ((_, (found,)),) = compare_all([row], peers)
        assert (found.peer.name, found.ratio) == (name, pytest.approx(ratio))
        assert found.wall_ratio == pytest.approx(wall_ratio)
        assert found.no_slower == (ratio > 1)


def test_ready_is_held_to_spiras_pairs_too() -> None:
    found = compare(MAPS, [ours("map", "z_delta", 0.12, 0.2, product="ready")], MAP_PEERS)
    ready, bar = found
    assert (ready.peer.name, ready.no_slower) == ("spconv MaskImplicitGemm", True)
    assert (bar.place[0], bar.peer.name) == ("ready (bar)", "spira dataflow1")
    assert not bar.no_slower


def test_of_runs_and_engines_the_best_counts() -> None:
    for what, comparer in (("map", MAPS), ("layer", LAYERS)):
        rows = [
            ours(what, "a", 0.05, 0.9, run=0),
            ours(what, "a", 0.04, 0.8, run=1),
            ours(what, "a", 0.06, 0.7, run=2),
            ours(what, "b", 0.045, 0.1),
            ours(what, "c", 0.001, 0.001, cache="cold"),
            ours(what, "d", 0.001, 0.001, params={"B": 64}),
        ]
        assert list(best_of_ours(comparer, rows).values()) == [[Best("a", 0.04, 0.7)]]


def test_a_layer_of_a_peer_counts_with_its_map() -> None:
    best = {place[0]: found for place, found in best_of_peers(LAYERS, LAYER_PEERS).items()}
    assert best["layer"] == Best("spconv MaskImplicitGemm", 0.025, 0.118)
    # 0.038 of the map and 0.036 of the call, less than 0.083 in one go
    assert best["map+layer"].name == "spira dataflow0"
    assert best["map+layer"].least == pytest.approx(0.074)
    assert best["train"].least == pytest.approx(0.2)
    assert best["map+train"].least == pytest.approx(0.373)
    times = {"gpu_busy_ms": 0.01, "with_map_busy_ms": 0.05}
    busy = peer("layer", "warpconvnet", "busy", None, None, **times)  # of a peer that waits
    best_busy = best_of_peers(LAYERS, [*LAYER_PEERS, busy])
    assert best_busy[("layer", *PLACE)].least == 0.01
    assert best_busy[("map+layer", *PLACE)].least == 0.05

    for engine, variant, wanted in (
        ("spira", "dataflow2", "dataflow2"),
        ("torchsparse", "hashmap/IG-sort2/bw3", "hashmap"),
        ("torchsparse", "hashmap_on_the_fly/IG-sort2/bw3", "hashmap_on_the_fly+sort3"),
        ("torchsparse", "hashmap_on_the_fly/FOD-fusion1", "hashmap_on_the_fly"),
        ("spconv", "MaskSplitImplicitGemm", "MaskImplicitGemm"),
    ):
        assert map_of(engine, variant) == wanted


def test_other_work_is_not_compared() -> None:
    kinds = ["layer", "map+layer", "train", "map+train"]
    assert places_of(LAYER_PEERS) == {"street": {LayerShape(16, 16, 3): kinds}}
    for other in ({"dtype": "float32"}, {"c_out": 32}):
        assert compare_all([ours("layer", "a", 0.01, 0.1, **other)], LAYER_PEERS) == []
    for other in (
        *({"params": {"mode": "train"}}, {"params": {"mode": "infer", "K": 7}}),
        *({"dtype": "bfloat16"}, {"model": "sparse_resnet"}),
    ):
        assert compare_all([ours("network", "auto", None, 1.0, **other)], NETWORK_PEERS) == []


def test_native_points_are_held_against_the_official_code() -> None:
    layer = {"workload": "room002", "k": 3, "c_in": 64, "c_out": 128, "stride": None}
    points = {"workload": "room002", "k": 3, "product": "train", "figure": "native_triplets"}
    peers = [
        {"engine": "pointelligence", "what": "radius", "workload": "room002", "k": 3},
        {"engine": "pointelligence", "what": "train", **layer, "dtype": "fp16", "wall_ms": 2.0},
        {"engine": "spconv", "what": "train", **layer, "dtype": "fp16", "wall_ms": 0.1},
    ]
    peers[0]["wall_ms"] = 3.0

    def train(wall: float, engine: str = "native", **other: Any) -> Row:
        return ours("train", engine, None, wall, figure="native_layers", **layer | other)

    def radius(wall: float, **other: Any) -> Row:
        return Row("radius", engine="native", wall_ms=wall, checked=True, **points | other)

    rows = [radius(1.0), radius(0.1, product="pairs"), train(1.5, run=0), train(1.25, run=1)]
    rows += [train(9.0, "pointcnnpp"), train(0.1, "voxel"), train(0.1, dtype="float32")]
    maps, layers, papers = compare(NATIVE, rows, peers)
    assert (maps.ratio, maps.aim.ratio, maps.met) == (3.0, 1.5, True)
    assert (layers.ratio, layers.aim.ratio, layers.met) == (pytest.approx(1.6), 2.0, False)
    assert (papers.ours.name, papers.aim.ratio, papers.met) == ("pointcnnpp", None, True)
    text = shown(NATIVE, [maps, layers, papers])
    assert "1.5 met" in text
    assert "2 MISSED" in text


def test_native_points_are_held_against_voxels_with_as_many_triplets() -> None:
    said = {"params": {"cloud": "room"}, "figure": "native_same_t"}
    rows = [
        ours("train", name, gpu, 1.0, **said) for name, gpu in (("voxel", 0.2), ("native", 0.3))
    ]
    (found,) = same_size(rows)
    assert found.ratio == pytest.approx(1.5)
    assert "native / voxel" in shown(SAME_SIZE, [found])
    assert not same_size(rows[:1])


def test_the_table_has_a_mean_a_group_and_says_whether_its_aim_is_met() -> None:
    rows = [ours("map", "z_delta", 0.02, 0.05), ours("map", "z_delta", 0.2, 0.3, product="pairs")]
    text = shown(MAPS, compare(MAPS, rows, MAP_PEERS))
    for part in ("ours on a CPU against the best peer on a GPU", "geometric mean of 1", "2.00"):
        assert part in text
    assert "1 of 1" in text
    assert "0 of 1" in text
    layers = [ours("layer", "a", 0.0125, 0.1, floor_ms=0.005), ours("train", "a", 0.25, 0.5)]
    text = shown(LAYERS, compare(LAYERS, layers, LAYER_PEERS))
    for part in ("K = 3, C <= 32", "aim 1.6: met", "aim 1.5: MISSED", "2.5", "0.80"):
        assert part in text
    for wall, word in ((5.0, "met"), (6.0, "MISSED")):
        found = compare(NETWORKS, [ours("network", "auto", None, wall)], NETWORK_PEERS)
        assert f"1.5 {word}" in shown(NETWORKS, found)


def test_peers_are_read_from_their_file(tmp_path: Path) -> None:
    path = tmp_path / "peers.json"
    path.write_text(json.dumps({"header": {"device": "GPU"}, "rows": MAP_PEERS}))
    assert read_peers(path) == Peers("GPU", MAP_PEERS)
    for text in ("", "[]", '{"rows": []}', '{"header": {"device": "GPU"}, "rows": [1]}'):
        path.write_text(text)
        with pytest.raises(ValueError, match="not a file of peers"):
            read_peers(path)
    with pytest.raises(ValueError, match="not a file of peers"):
        read_peers(tmp_path / "absent.json")
