"""Other packages beside ours: through our drop-in of spconv."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from benchmarks import nets, networks
from benchmarks.peers import Peer, network
from benchmarks.peers.spconv import Spconv
from benchmarks.rows import Row
from benchmarks.workloads import Scene
from pcnn.compat.spconv import pytorch as our_spconv
from pcnn.geometry import grid_of_cells
from pcnn.models import MinkUNet42
from pcnn.tensor import SparseTensor
from tests.benchmarks.small import CELLS, left_out, options

SPCONV = Spconv("plain-spconv", our_spconv)
#: Cells that are negative, too, in two clouds.
GRID = grid_of_cells(CELLS[:40] - 3, torch.arange(40) % 2, 2)
MOVED = Scene("moved", GRID)


def rows_of(*modes: str) -> list[Row]:
    given = options(models=["minkunet"], modes=modes)
    return list(networks.network_rows(given, "networks", entries=[(SPCONV, {})], chosen=[MOVED]))


def test_a_network_of_a_package_gives_what_ours_gives() -> None:
    """The check says so: it is wrong sites, rows, weights or gradients that it finds."""
    rows = rows_of("infer", "train")
    assert left_out(rows) == []
    assert [(row["engine"], row["mode"]) for row in rows] == [
        ("plain-spconv", mode) for mode in ("infer", "train")
    ]


def test_wrong_weights_of_a_package_are_never_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = nets.rebuilt

    def damaged(network: Any, peer: Peer) -> Any:
        made = right(network, peer)
        for name, weight in made.named_parameters():
            if name.endswith("theirs.weight") and weight.shape[1] == 3:
                weight.data = weight.data.flip(1).contiguous()
        return made

    monkeypatch.setattr(nets, "rebuilt", damaged)
    assert "is off by" in left_out(rows_of("infer"))[0]


def test_a_network_of_a_package_learns_what_ours_learns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "installed", lambda name: SPCONV)
    found = []
    for made in (MinkUNet42, network.PeerMinkUNet):
        torch.manual_seed(0)
        net = made(4, 5, **({} if made is MinkUNet42 else {"package": "any"}), width=0.125).double()
        x = SparseTensor(torch.rand(GRID.rows, 4, dtype=torch.float64), GRID)
        out = net.train()(x).features
        out.square().sum().backward()
        norms = [one.grad.norm() for one in net.parameters() if one.grad is not None]
        found.append((out, torch.stack(norms).sort().values))
    torch.testing.assert_close(*found)
