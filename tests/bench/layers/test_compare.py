from __future__ import annotations

import pytest
from rich.console import Console

from pcnn.bench.layers.compare import (
    best_of_ours,
    best_of_peers,
    compare,
    comparison_table,
    map_of,
    places_of,
)
from pcnn.bench.layers.setting import LayerShape
from pcnn.bench.rows import Row
from pcnn.bench.versus import Best

SHAPE = LayerShape(16, 16, 3)


def peer(
    engine: str, variant: str, gpu: float | None, wall: float | None, **other: object
) -> dict[str, object]:
    row = {"what": "layer", "engine": engine, "variant": variant, "workload": "street"}
    row |= {"dtype": "fp16", "k": 3, "stride": 1, "c_in": 16, "c_out": 16}
    return {**row, "gpu_ms": gpu, "wall_ms": wall, **other}


def peer_map(engine: str, variant: str, gpu: float, wall: float) -> dict[str, object]:
    return {**peer(engine, variant, gpu, wall), "what": "map"}


def ours(engine: str, what: str, gpu: float | None, wall: float, **other: object) -> Row:
    words = {"dtype": "float16", "k": 3, "stride": 1, "c_in": 16, "c_out": 16, "cache": "warm"}
    return Row(what, "street", engine, gpu_ms=gpu, wall_ms=wall, checked=True, **words | other)


PEERS = [
    peer("spconv", "MaskImplicitGemm", 0.025, 0.118, with_map_wall_ms=0.392),
    peer("spira", "dataflow0", 0.036, 0.052, with_map_wall_ms=0.083),
    peer("warpconvnet", "default", 0.7, 1.2, with_map_wall_ms=2.3),
    peer_map("spira", "dataflow0", 0.043, 0.038),
    peer_map("spconv", "MaskImplicitGemm", 0.173, 0.243),
    peer("spconv", "MaskImplicitGemm", 0.2, 0.9, what="train", with_map_wall_ms=1.9),
]


def test_a_peers_time_is_the_smallest_it_has() -> None:
    best = best_of_peers(PEERS)
    best = {place[3]: found for place, found in best.items()}
    assert best["layer"] == Best("spconv MaskImplicitGemm", 0.025, 0.118)
    # 0.038 of the map and 0.036 of the call, less than 0.083 in one go
    assert best["map+layer"].name == "spira dataflow0"
    assert best["map+layer"].least == pytest.approx(0.074)
    assert best["train"].least == pytest.approx(0.2)
    assert best["map+train"].least == pytest.approx(0.373)


def test_the_sum_of_kernels_counts_where_a_peer_waits() -> None:
    busy = peer("warpconvnet", "busy", None, None, gpu_busy_ms=0.01, with_map_busy_ms=0.05)
    best = best_of_peers([*PEERS, busy])
    assert best["street", "float16", SHAPE, "layer"].least == 0.01
    assert best["street", "float16", SHAPE, "map+layer"].least == 0.05


@pytest.mark.parametrize(
    ("engine", "variant", "wanted"),
    [
        ("spira", "dataflow2", "dataflow2"),
        ("torchsparse", "hashmap/IG-sort2/bw3", "hashmap"),
        ("torchsparse", "hashmap_on_the_fly/IG-sort2/bw3", "hashmap_on_the_fly+sort3"),
        ("torchsparse", "hashmap_on_the_fly/FOD-fusion1", "hashmap_on_the_fly"),
        ("spconv", "MaskSplitImplicitGemm", "MaskImplicitGemm"),
        ("spconv", "Native", "Native"),
    ],
)
def test_a_layer_knows_its_map(engine: str, variant: str, wanted: str) -> None:
    assert map_of(engine, variant) == wanted


def test_of_runs_and_engines_the_best_counts() -> None:
    rows = [
        ours("a", "layer", 0.03, 0.9, run=0, floor_ms=0.01),
        ours("a", "layer", 0.02, 0.8, run=1, floor_ms=0.01),
        ours("b", "layer", 0.04, 0.7),
        ours("c", "layer", 0.001, 0.1, params={"t": 1}),
        ours("d", "layer", 0.001, 0.1, cache="cold"),
    ]
    found = best_of_ours(rows)
    assert found == {("street", "float16", SHAPE, "layer"): (Best("a", 0.02, 0.8), 0.01)}


def test_ours_is_the_gpu_time_unless_the_call_waits() -> None:
    (found,) = compare([ours("a", "layer", 0.0125, 0.1)], PEERS)
    assert found.ratio == pytest.approx(2.0)
    assert found.wall_ratio == pytest.approx(1.18)
    assert found.no_slower
    (waits,) = compare([ours("a", "map+layer", None, 0.148)], PEERS)
    assert waits.ratio == pytest.approx(0.5)
    assert not waits.no_slower


def test_another_dtype_or_layer_is_not_compared() -> None:
    assert not compare([ours("a", "layer", 0.01, 0.1, dtype="float32")], PEERS)
    assert not compare([ours("a", "layer", 0.01, 0.1, c_out=32)], PEERS)


def test_places_are_what_the_peers_have() -> None:
    kinds = ["layer", "map+layer", "train", "map+train"]
    assert places_of(PEERS) == {"street": {SHAPE: kinds}}


def test_the_table_has_a_mean_a_group_and_says_whether_its_aim_is_met() -> None:
    rows = [ours("a", "layer", 0.0125, 0.1, floor_ms=0.005), ours("a", "train", 0.25, 0.5)]
    console = Console(width=220, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(comparison_table(compare(rows, PEERS), "a CPU", "a GPU"))
    text = console.export_text()
    for part in ("K = 3, C <= 32", "aim 1.6: met", "aim 1.5: MISSED", "2.5", "0.80", "16 -> 16 K3"):
        assert part in text
