from __future__ import annotations

import pytest
from rich.console import Console

from pcnn.bench.networks.compare import compare, comparison_table
from pcnn.bench.rows import Row


def peer(engine: str, variant: str, wall: float, **other: object) -> dict[str, object]:
    row = {"what": "network", "engine": engine, "variant": variant, "workload": "street"}
    return {**row, "model": "minkunet", "dtype": "fp16", "wall_ms": wall, **other}


def ours(engine: str, wall: float, mode: str = "infer", **other: object) -> Row:
    words = {"model": "minkunet", "dtype": "float16", "params": {"mode": mode}, "cache": "warm"}
    return Row("network", "street", engine, wall_ms=wall, checked=True, **words | other)


PEERS = [
    peer("spira", "artifact", 9.0),
    peer("spira", "artifact", 8.0),
    peer("spconv", "spconv downsampling (k>s keeps more outputs: NOT the same work)", 1.0),
    peer("torchsparse", "library default; k3s2 keeps more outputs", 1.0),
    peer("spira", "artifact", 1.0, what="map"),
]


def test_the_best_peer_of_the_same_work_counts() -> None:
    rows = [ours("auto", 6.0, run=0), ours("auto", 5.0, run=1), ours("reference", 70.0)]
    (found,) = compare(rows, PEERS)
    assert found.place == ("street", "minkunet", "float16")
    assert (found.ours.name, found.ours.least, found.peer.least) == ("auto", 5.0, 8.0)
    assert found.ratio == pytest.approx(1.6)
    assert found.no_slower


def test_only_inference_from_cells_of_the_plain_network_is_compared() -> None:
    rows = [
        ours("auto", 1.0, "forward"),
        ours("auto", 1.0, "train"),
        ours("auto", 1.0, params={"mode": "infer", "K": 7}),
        ours("auto", 1.0, dtype="bfloat16"),
        ours("auto", 1.0, model="sparse_resnet"),
    ]
    assert not compare(rows, PEERS)
    assert compare([ours("auto", 9.0, params={"mode": "infer", "checked_on": "9"})], PEERS)


def test_the_table_says_whether_the_aim_is_met() -> None:
    console = Console(width=220, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    for wall, word in ((5.0, "met"), (6.0, "MISSED")):
        console.print(comparison_table(compare([ours("auto", wall)], PEERS), "a CPU", "a GPU"))
        text = console.export_text()
        assert word in text
        assert "geometric mean of 1" in text
        assert "1 of 1" in text
