"""The networks that are measured: of the papers' evaluations, with norms that have seen a scene."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from pcnn.models import (
    SPVCNN,
    LitePTS,
    MinkUNet42,
    ResNet18,
    ResUNetBN2C,
    SparseResNet21,
    SparseResNetLarge,
    SpUNet,
    VoxelResBackbone,
)
from pcnn.nn import Conv3d
from pcnn.nn.conv import Size
from pcnn.nn.planned import PlannedModule
from pcnn.ops.engine import Engine
from pcnn.tensor import SparseTensor

#: Input channels of all networks.
CHANNELS = 4
#: Classes of ``minkunet_logits``, as SemanticKITTI has.
CLASSES = 19


def minkunet(
    engine: Engine, size: int = 3, width: float = 1.0, classes: int | None = None
) -> PlannedModule:
    """MinkUNet42, its 3^3 kernels of another size if asked for (Spira Table 4).

    Without ``classes`` it has no head, as in the papers' evaluations.
    """

    def conv(
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        *,
        bias: bool = True,
    ) -> Conv3d:
        chosen = size if kernel_size == 3 else kernel_size
        return Conv3d(in_channels, out_channels, chosen, stride, bias=bias, engine=engine)

    return MinkUNet42(CHANNELS, classes, width, engine, conv)


def _spvcnn(engine: Engine, width: float) -> PlannedModule:
    """Without dropout, so that every engine trains the same network."""
    return SPVCNN(CHANNELS, None, width, dropout=0.0, engine=engine)


def _litept(engine: Engine, width: float) -> PlannedModule:
    """Without draws, so that every engine trains the same network."""
    return LitePTS(CHANNELS, None, width, drop_path=0.0, shuffle_orders=False, engine=engine)


def _of_one_size(
    make: Callable[[Engine, float], PlannedModule],
    own: int,
    engine: Engine,
    size: int,
    width: float,
) -> PlannedModule:
    if size != own:
        raise ValueError(f"this network has kernels of size {own}, not {size}")
    return make(engine, width)


#: Networks by name: of an engine, a kernel size and a width. The first kernel of ResNet18, the
#: network of the PointCNN++ benchmark, has size 5.
NETWORKS: dict[str, Callable[[Engine, int, float], PlannedModule]] = {
    "sparse_resnet": partial(_of_one_size, lambda e, w: SparseResNet21(CHANNELS, w, e), 3),
    "sparse_resnet_large": partial(_of_one_size, lambda e, w: SparseResNetLarge(CHANNELS, w, e), 5),
    "minkunet": minkunet,
    "minkunet_logits": partial(minkunet, classes=CLASSES),
    "resunet": partial(_of_one_size, lambda e, w: ResUNetBN2C(CHANNELS, width=w, engine=e), 5),
    "resnet18": partial(_of_one_size, lambda e, w: ResNet18(CHANNELS, width=w, engine=e), 3),
    "spunet": partial(_of_one_size, lambda e, w: SpUNet(CHANNELS, None, w, e), 3),
    "spvcnn": partial(_of_one_size, _spvcnn, 3),
    "litept": partial(_of_one_size, _litept, 3),
    "voxel_resbackbone": partial(_of_one_size, lambda e, w: VoxelResBackbone(CHANNELS, w, e), 3),
}
#: Size of the kernels that name a network.
KERNEL_SIZE = dict.fromkeys(NETWORKS, 3) | {"sparse_resnet_large": 5, "resunet": 5}


def make_network(
    name: str, engine: Engine, size: int, width: float, device: torch.device
) -> PlannedModule:
    """Network with fixed random weights, the same for every engine, in float32.

    Made where it runs: 13^3 kernels have more than a thousand million weights.

    Raises:
        ValueError: a network without kernels of that size.
    """
    cuda = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=cuda), torch.device(device):
        torch.manual_seed(0)
        return NETWORKS[name](engine, size, width)


@torch.no_grad()
def settle_norms(network: PlannedModule, x: SparseTensor) -> None:
    """Give all norms the statistics of one batch: with those of a new network, features vanish.

    A channel that is the same in all rows, as where every point of a small cloud is a neighbour of
    every other, has no scale: it keeps the variance 1 of a new norm. Divided by the root of a
    variance of 0 and ``eps``, features would grow by a factor of 300 a layer, beyond float16.
    """
    norms = [module for module in network.modules() if isinstance(module, _BatchNorm)]
    before = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 1.0
    network.train()
    network(x)
    for norm, momentum in zip(norms, before, strict=True):
        norm.momentum = momentum
        if norm.running_var is not None:
            norm.running_var[norm.running_var < norm.eps] = 1.0
    network.eval()


def features_of(outputs: object) -> list[torch.Tensor]:
    """Features of a network's output or outputs; logits of clouds as they are."""
    found = outputs if isinstance(outputs, list) else [outputs]
    tensors: list[torch.Tensor] = []
    for one in found:
        tensor = one.features if isinstance(one, SparseTensor) else one
        assert isinstance(tensor, torch.Tensor)
        tensors.append(tensor)
    return tensors
