"""Single convolutions of other packages."""

from __future__ import annotations

import torch
from torch import Tensor

from pcnn.bench.harness import Calls, same
from pcnn.bench.installed.peer import Peer, PeerTensor, in_our_order, require_dtype, require_sites
from pcnn.bench.layers.layer import NAMES, WITH_MAP, Operands
from pcnn.bench.trace import Call
from pcnn.geometry import Geometry, Kernel
from pcnn.nn import Conv3d


class InstalledLayer:
    """One convolution of a package, with the operands that ours has.

    Args:
        peer: the package.
        source: input sites, voxels.
        kernel: the relation.
        operands: what is multiplied.

    Raises:
        ValueError: the package has no such layer, or other output sites.
    """

    def __init__(self, peer: Peer, source: Geometry, kernel: Kernel, operands: Operands) -> None:
        require_dtype(peer, operands.dtype)
        require_sites(peer, kernel, source.downsampling)
        self.peer, self.kernel, self.operands = peer, kernel, operands
        ours = Conv3d(
            operands.x.shape[1],
            operands.grad.shape[1],
            kernel.size,
            kernel.stride,
            kernel.padding,
            kernel.dilation,
            operands.groups,
            bias=False,
        ).to(operands.x.device)
        ours.weight.data = operands.weight.detach()
        self.layer = peer.layer(ours)
        self.prepared = peer.prepared(source.coords, source.batch_size)
        self._in_order = False

    def _input(self) -> PeerTensor:
        return self.peer.tensor(self.prepared, self.operands.x)

    @torch.no_grad()
    def forward(self, x: PeerTensor) -> tuple[Tensor]:
        """Output ``[N_out, C_out]``, without gradients."""
        self.layer.eval()
        return (self._output(x),)

    def train(self, x: PeerTensor) -> tuple[Tensor, Tensor, Tensor]:
        """Output and the gradients with respect to features and weights."""
        self.layer.train()
        out = self._output(x)
        inputs = self.operands.x, self.layer.weight
        grad_x, grad_weight = torch.autograd.grad(out, inputs, self.operands.grad)
        return out, grad_x, grad_weight

    def _output(self, x: PeerTensor) -> Tensor:
        y = self.layer(x)
        found: Tensor = y.features
        return found[in_our_order(y.geometry.coords())] if self._in_order else found

    def calls(self, kind: str) -> Calls:
        """Calls of every repeat.

        Args:
            kind: a name in `pcnn.bench.setting.KINDS`.

        Raises:
            ValueError: a strided layer on an existing map, where the package keeps none; a new
                map, where it builds none.
        """
        if kind in WITH_MAP and not self.peer.builds_maps:
            raise ValueError(
                f"{self.peer.name} is given our map of voxels: compare layer and train"
            )
        run = self.train if kind.endswith("train") else self.forward
        if kind in WITH_MAP:

            def prepared(_: int) -> Call:
                x = self._input()
                return lambda: run(x)

            return prepared
        if self.kernel.is_strided and not self.peer.keeps_strided_maps:
            raise ValueError(
                f"{self.peer.name} builds the map of a strided layer in every call: compare "
                f"map+{kind}"
            )
        x = self._input()
        run(x)
        return same(lambda: run(x))

    def results(self, kind: str) -> dict[str, Tensor]:
        """The results of the call of a kind, by name: rows in our order, weights in our layout."""
        self._in_order = True
        found = self.calls(kind)(0)()
        self._in_order = False
        assert isinstance(found, tuple)
        named = dict(zip(NAMES, found, strict=False))
        if "grad_weight" in named:
            named["grad_weight"] = self.layer.in_ours(named["grad_weight"])
        return named
