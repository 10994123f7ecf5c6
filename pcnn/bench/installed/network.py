"""Networks of other packages: their input, and their results in our order and our layout."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from pcnn.bench.harness import Calls
from pcnn.bench.installed.peer import (
    Peer,
    PeerLayer,
    PeerTensor,
    in_our_order,
    rebuilt,
    require_sites,
)
from pcnn.bench.networks.work import Cells, Input, Work
from pcnn.nn import Conv3d


@dataclass(frozen=True, eq=False)
class PeerCells:
    """Cells and features as a package wants them.

    Args:
        peer: the package.
        prepared: what it has made of the cells.
        features: ``[P, C]``.
    """

    peer: Peer
    prepared: Any
    features: Tensor

    @classmethod
    def of(cls, peer: Peer, cells: Input) -> PeerCells:
        """Cells of a scene.

        Raises:
            ValueError: native points.
        """
        if not isinstance(cells, Cells):
            raise ValueError(f"{peer.name} is measured on voxels alone")
        return cls(peer, peer.prepared(cells.cells, cells.batches), cells.features)

    @property
    def are_points(self) -> bool:
        """See `Input.are_points`."""
        return False

    def to(self, dtype: torch.dtype) -> PeerCells:
        """The same cells with features of another dtype."""
        return PeerCells(self.peer, self.prepared, self.features.to(dtype))

    def on(self, network: nn.Module, backward: bool) -> PeerTensor:
        """A tensor without maps, whatever the network: its layers build them."""
        return self.peer.tensor(self.prepared, self.features)


class PeerWork(Work):
    """A network of a package's layers on its input.

    Args:
        peer: the package.
        network: of its layers.
        cells: what it is given.
        dtype: as in `Work`.
    """

    def __init__(self, peer: Peer, network: Any, cells: Input, dtype: torch.dtype) -> None:
        super().__init__(network, PeerCells.of(peer, cells), dtype)
        self.peer, self._in_order = peer, False

    @classmethod
    def of(
        cls, peer: Peer, network: nn.Module, cells: Input, dtype: torch.dtype, trains: bool
    ) -> PeerWork:
        """A network of ours, rebuilt of a package's layers.

        Args:
            peer: the package.
            network: ours, in float32.
            cells: what it is given.
            dtype: that products are computed in.
            trains: parameters stay in float32.

        Raises:
            ValueError: the package has no such layer, or other output sites.
        """
        for layer in network.modules():
            if isinstance(layer, Conv3d) and isinstance(cells, Cells):
                require_sites(peer, layer.kernel, cells.downsampling)
        made = rebuilt(network, peer).eval()
        return cls(peer, made if trains else made.to(dtype), cells, dtype)

    def elsewhere(self, cells: Input) -> PeerWork:
        """See `Work.elsewhere`."""
        return PeerWork(self.peer, self.network, cells, self.dtype)

    def calls(self, mode: str) -> Calls:
        """See `Work.calls`.

        Raises:
            ValueError: a mode on planned input, where the package keeps no strided maps; any mode,
                where it builds none.
        """
        if not self.peer.builds_maps:
            raise ValueError(f"{self.peer.name} finds no neighbours of voxels: compare its layers")
        if mode not in ("infer", "train") and not self.peer.keeps_strided_maps:
            raise ValueError(
                f"{self.peer.name} builds the maps of strided layers in every call: compare the "
                "modes infer and train"
            )
        return super().calls(mode)

    def results(self, mode: str) -> dict[str, Tensor]:
        """See `Work.results`: rows in our order, weights in our layout."""
        self._in_order = True
        found = super().results(mode)
        self._in_order = False
        return dict(self._ours(name, value) for name, value in found.items())

    def _features(self, outputs: object) -> list[Tensor]:
        if not self._in_order:
            return super()._features(outputs)
        every: list[Any] = outputs if isinstance(outputs, list) else [outputs]
        return [one.features[in_our_order(one.geometry.coords())] for one in every]

    def _ours(self, name: str, value: Tensor) -> tuple[str, Tensor]:
        prefix, _, entry = name.rpartition(".theirs.")
        if not prefix:
            return name, value
        layer = self.network.get_submodule(prefix)
        assert isinstance(layer, PeerLayer)
        assert entry == layer.layout.parameter
        return f"{prefix}.weight", layer.in_ours(value)
