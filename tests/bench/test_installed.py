"""Other packages beside ours: through stand-ins that follow their interfaces."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pcnn.bench import installed
from pcnn.bench.installed import PACKAGES
from pcnn.bench.installed.flexgemm import FlexGemm
from pcnn.bench.installed.minkowski import Minkowski
from pcnn.bench.installed.network import PeerWork
from pcnn.bench.installed.peer import Peer, in_our_order
from pcnn.bench.installed.pointelligence import Pointelligence
from pcnn.bench.installed.spconv import Spconv
from pcnn.bench.installed.torchsparse import TorchSparse
from pcnn.bench.installed.warpconvnet import WarpConvNet
from pcnn.bench.layer_shape import layer_shapes
from pcnn.bench.layers.cases import layer_rows
from pcnn.bench.networks.cases import network_rows
from pcnn.bench.scenes import Scene, downsampled
from pcnn.bench.setting import NetworksSetting, Precision
from pcnn.geometry import grid_of_cells
from pcnn.nn import Conv3d
from tests.bench import plain_packages as plain
from tests.bench import plain_spconv
from tests.bench.settings import CELLS, left_out, of_layers, of_networks

SPCONV = Spconv("plain-spconv", plain_spconv)
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
SCENES = [Scene("moved", GRID)]
REACHED = downsampled(SCENES, "reached")


def shown(rows: list[Any]) -> list[Any]:
    return [(row.engine, row.what, (row.params or {}).get("mode"), row.checked) for row in rows]


@pytest.mark.parametrize("peer", UNETS, ids=lambda peer: peer.name)
def test_a_network_of_a_package_gives_what_ours_gives(peer: Peer) -> None:
    """The check says so: it is wrong sites, rows, weights or gradients that it finds."""
    given = {"engines": [], "installed": [peer], "scenes": SCENES, "model": ["minkunet"]}
    rows = list(network_rows(of_networks(**given, mode=["infer", "train"], repeats=1), "networks"))
    assert not left_out(rows)
    assert shown(rows) == [(peer.name, "network", mode, True) for mode in ("infer", "train")]


@pytest.mark.parametrize("peer", EVERY, ids=lambda peer: peer.name)
def test_layers_of_a_package_are_checked_and_timed(peer: Peer) -> None:
    given = {"engines": [], "installed": [peer], "scenes": SCENES, "repeats": 1}
    shapes = layer_shapes("4:6:3,4:6:1")
    rows = list(layer_rows(of_layers(**given, shapes=shapes), "layers"))
    reasons = left_out(rows)
    assert len(reasons) == (0 if peer.builds_maps else 4)
    assert all("is given our map of voxels: compare layer and train" in one for one in reasons)
    strided = of_layers(**given, shapes=layer_shapes("4:6:2:2"))
    rows = list(layer_rows(strided, "layers"))
    reasons = left_out(rows)
    if peer is POINTS:
        assert "is compared at stride 1" in reasons[0]
        return
    assert len(reasons) == (0 if peer.keeps_strided_maps else 2)
    assert all("builds the map of a strided layer in every call" in reason for reason in reasons)
    assert [row.what for row in rows if row.checked][-2:] == ["map+layer", "map+train"]


def test_other_sites_are_compared_where_ours_reach_them_too() -> None:
    given: dict[str, Any] = {"engines": [], "installed": [SPCONV], "mode": ["infer"], "repeats": 1}
    (floor,) = network_rows(of_networks(**given, scenes=SCENES), "networks")
    assert (
        "other output sites in plain-spconv; compare it with --sites reached"
        in left_out([floor])[0]
    )
    reached = of_networks(**given | {"engine": ["auto"]}, scenes=REACHED)
    ours = reached.having(installed=[], engines=of_networks().engines)
    for setting in (ours, reached):
        (row,) = network_rows(setting, "networks")
        assert row.checked, row.params
        assert (row.params or {})["sites"] == "reached"
    shapes, reaching = layer_shapes("4:6:3:2"), [one for one in EVERY if one.reaches]
    layers = of_layers(engines=[], installed=reaching, scenes=REACHED, shapes=shapes, repeats=1)
    rows = list(layer_rows(layers, "layers", kinds=["map+train"]))
    assert [row.checked for row in rows] == [True] * len(reaching), left_out(rows)
    given["installed"] = [one for one in UNETS if not one.reaches]
    rows = list(network_rows(of_networks(**given, scenes=SCENES), "networks"))
    assert [row.checked for row in rows] == [True, True], left_out(rows)
    with pytest.raises(ValueError, match="ceil: must be one of floor, reached"):
        downsampled(SCENES, "ceil")


def test_wrong_weights_of_a_package_are_never_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = PeerWork.of

    def damaged(*given: Any) -> PeerWork:
        work = right(*given)
        for name, weight in work.network.named_parameters():
            if name.endswith("theirs.weight") and weight.shape[1] == 3:
                weight.data = weight.data.flip(1).contiguous()
        return work

    monkeypatch.setattr(PeerWork, "of", damaged)
    given: dict[str, Any] = {"engines": [], "installed": [SPCONV], "model": ["minkunet"]}
    (row,) = network_rows(of_networks(**given, mode=["infer"], scenes=SCENES), "networks")
    assert "is off by" in left_out([row])[0]


def test_modes_and_layers_that_a_package_lacks_are_named() -> None:
    given: dict[str, Any] = {"engines": [], "installed": [SPCONV], "model": ["minkunet"]}
    (row,) = network_rows(of_networks(**given, mode=["step"], scenes=SCENES), "networks")
    assert "compare the modes infer and train" in left_out([row])[0]
    given |= {"installed": [POINTS, FLEXGEMM], "mode": ["infer"], "scenes": SCENES}
    reasons = left_out(network_rows(of_networks(**given), "networks"))
    assert "is compared at stride 1" in reasons[0]
    assert "no transposed convolution" in reasons[1]
    given |= {"installed": [MINKOWSKI], "dtype": Precision.float16}
    (reason,) = left_out(network_rows(of_networks(**given), "networks"))
    assert "is compared in float32, not in float16" in reason
    for peer, layer, words in (
        (SPCONV, Conv3d(4, 4, 3, groups=2, bias=False), "without biases and groups"),
        (SPCONV, Conv3d(4, 4, 3), "without biases"),
        (SPCONV, Conv3d(4, 4, 2, bias=False), "no even kernel at stride 1"),
        (MINKOWSKI, Conv3d(4, 4, 3, 3, bias=False), r"centres odd kernels .* padding \(0, 0, 0\)"),
        (UNETS[1], Conv3d(4, 4, 3, dilation=2, bias=False), "computes no such kernel"),
        (FLEXGEMM, Conv3d(4, 4, 5, bias=False), "has no such kernel"),
    ):
        with pytest.raises(ValueError, match=words):
            peer.layer(layer)


def test_a_package_that_is_missing_is_named_with_its_licence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    missing = replace(PACKAGES["spconv-triton"], modules=("no_such_package.pytorch",))
    monkeypatch.setitem(PACKAGES, "spconv-triton", missing)
    setting = NetworksSetting(engine=["spconv-triton", "auto"])
    with pytest.raises(ValueError, match=r"pip install spconv-triton \(licence: Apache-2.0\)"):
        setting.resolve()
    assert [engine.name for engine in setting.engines] == ["auto"]
    monkeypatch.setattr(installed, "find_spec", lambda name: SimpleNamespace(name=name))
    monkeypatch.setattr(installed, "import_module", _imported)
    (peer,) = setting.installed
    assert peer.name == "spconv-triton"


def _imported(name: str) -> Any:
    if name == "no_such_package.pytorch":
        return plain_spconv
    return SimpleNamespace(peer=Spconv)


def test_rows_are_sorted_as_ours() -> None:
    shuffled = torch.randperm(GRID.rows)
    assert torch.equal(shuffled[in_our_order(GRID.coords[shuffled])], torch.arange(GRID.rows))
    assert in_our_order(GRID.coords[:0]).shape == (0,)
