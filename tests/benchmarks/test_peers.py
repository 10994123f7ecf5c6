"""Other packages beside ours: through stand-ins that follow their interfaces."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from benchmarks import layers, nets, networks, peers
from benchmarks.peers import PACKAGES, Peer
from benchmarks.peers.base import in_our_order
from benchmarks.peers.flexgemm import FlexGemm
from benchmarks.peers.minkowski import Minkowski
from benchmarks.peers.pointelligence import Pointelligence
from benchmarks.peers.spconv import Spconv
from benchmarks.peers.torchsparse import TorchSparse
from benchmarks.peers.warpconvnet import WarpConvNet
from benchmarks.rows import Row, is_measured
from benchmarks.workloads import Scene
from pcnn.compat.spconv import pytorch as our_spconv
from pcnn.geometry import grid_of_cells
from pcnn.nn import Conv3d
from tests.benchmarks import plain_packages as plain
from tests.benchmarks.small import CELLS, left_out, options

SPCONV = Spconv("plain-spconv", our_spconv)
MINKOWSKI = Minkowski("minkowski", plain.MINKOWSKI)
FLEXGEMM = FlexGemm("flexgemm", plain.FLEXGEMM)
POINTS = Pointelligence("pointelligence", plain.POINT_LAYERS)
UNETS: list[Peer] = [
    SPCONV,
    TorchSparse("torchsparse-package", plain.TORCHSPARSE, plain.TORCHSPARSE_LAYERS),
    MINKOWSKI,
    WarpConvNet("warpconvnet", plain.WARP_TENSORS, plain.WARP_LAYERS),
]
EVERY = [*UNETS, FLEXGEMM, POINTS]
#: Cells that are negative, too, in two clouds.
GRID = grid_of_cells(CELLS[:40] - 3, torch.arange(40) % 2, 2)
MOVED = Scene("moved", GRID)
REACHED = Scene("moved", replace(GRID, downsampling="reached"))


def of_network(peer: Peer, *modes: str, model: str = "minkunet", **other: Any) -> list[Row]:
    given = options(models=[model], modes=modes, **other)
    return list(networks.network_rows(given, "networks", entries=[(peer, {})], chosen=[MOVED]))


def of_layer(
    peer: Peer, shape: str, monkeypatch: pytest.MonkeyPatch, scene: Scene = MOVED, **other: Any
) -> list[Row]:
    monkeypatch.setattr(layers, "scenes", lambda *_: [scene])
    given = options(shapes=[shape], **other)
    return list(layers.layer_rows(given, "layers", lambda _: [(peer, {})]))


@pytest.mark.parametrize("peer", UNETS, ids=lambda peer: peer.name)
def test_a_network_of_a_package_gives_what_ours_gives(peer: Peer) -> None:
    """The check says so: it is wrong sites, rows, weights or gradients that it finds."""
    rows = of_network(peer, "infer", "train")
    assert left_out(rows) == []
    assert [(row["engine"], row["mode"]) for row in rows] == [
        (peer.name, mode) for mode in ("infer", "train")
    ]


@pytest.mark.parametrize("peer", EVERY, ids=lambda peer: peer.name)
def test_layers_of_a_package_are_checked_and_timed(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = of_layer(peer, "4:6:3,4:6:1", monkeypatch)
    assert len(left_out(rows)) == (0 if peer.builds_maps else 4)
    rows = of_layer(peer, "4:6:2:2", monkeypatch)
    measured = [row["what"] for row in rows if is_measured(row)]
    if peer is POINTS:
        assert measured == []
    else:
        assert measured[-2:] == ["map+layer", "map+train"]
        assert len(measured) == (4 if peer.keeps_strided_maps else 2)


@pytest.mark.parametrize("peer", EVERY, ids=lambda peer: peer.name)
def test_other_sites_are_compared_where_ours_reach_them_too(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for scene, reached in ((MOVED, False), (REACHED, True)):
        rows = of_layer(peer, "4:6:3:2", monkeypatch, scene, modes=["map+train"])
        served = peer is not POINTS and peer is not MINKOWSKI and peer.reaches == reached
        if peer is MINKOWSKI and not reached:
            continue  # it centres kernels, as ours of this stride do not
        assert [is_measured(row) for row in rows] == [served], left_out(rows)


def test_wrong_weights_of_a_package_are_never_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = nets.rebuilt

    def damaged(network: Any, peer: Peer) -> Any:
        made = right(network, peer)
        for name, weight in made.named_parameters():
            if name.endswith("theirs.weight") and weight.shape[1] == 3:
                weight.data = weight.data.flip(1).contiguous()
        return made

    monkeypatch.setattr(nets, "rebuilt", damaged)
    assert "is off by" in left_out(of_network(SPCONV, "infer"))[0]


@pytest.mark.parametrize(
    ("peer", "mode", "dtype"),
    [
        (SPCONV, "step", "float32"),
        (POINTS, "infer", "float32"),
        (FLEXGEMM, "infer", "float32"),
        (MINKOWSKI, "infer", "float16"),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_what_a_package_lacks_is_left_out(peer: Peer, mode: str, dtype: str) -> None:
    (reason,) = left_out(of_network(peer, mode, dtype=dtype))
    assert reason.startswith("ValueError")
    assert peer.name in reason


@pytest.mark.parametrize(
    ("peer", "layer"),
    [
        (SPCONV, Conv3d(4, 4, 3, groups=2, bias=False)),
        (SPCONV, Conv3d(4, 4, 3)),
        (SPCONV, Conv3d(4, 4, 2, bias=False)),
        (MINKOWSKI, Conv3d(4, 4, 3, 3, bias=False)),
        (UNETS[1], Conv3d(4, 4, 3, dilation=2, bias=False)),
        (FLEXGEMM, Conv3d(4, 4, 5, bias=False)),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_layers_that_a_package_lacks_are_refused(peer: Peer, layer: Conv3d) -> None:
    with pytest.raises(ValueError, match=peer.name):
        peer.layer(layer)


def test_a_package_that_is_missing_is_named_with_its_licence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    missing = replace(PACKAGES["spconv-triton"], modules=("no_such_package.pytorch",))
    monkeypatch.setitem(PACKAGES, "spconv-triton", missing)
    with pytest.raises(ValueError, match=r"pip install spconv-triton .*Apache-2.0"):
        peers.installed("spconv-triton")


def test_rows_are_sorted_as_ours() -> None:
    shuffled = torch.randperm(GRID.rows)
    assert torch.equal(shuffled[in_our_order(GRID.coords[shuffled])], torch.arange(GRID.rows))
    assert in_our_order(GRID.coords[:0]).shape == (0,)
