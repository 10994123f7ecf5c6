"""The networks that are measured: of the papers' evaluations, with norms that have seen a scene."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from pcnn.models import MinkUNet42, ResNet18, SparseResNet21, SparseResNetLarge
from pcnn.nn import Conv3d
from pcnn.nn.conv import Size
from pcnn.nn.planned import PlannedModule
from pcnn.ops.engine import Engine
from pcnn.tensor import SparseTensor

#: Input channels of all networks.
CHANNELS = 4


def minkunet(engine: Engine, size: int = 3, width: float = 1.0) -> PlannedModule:
    """MinkUNet42 without head, its 3^3 kernels of another size if asked for (Spira Table 4)."""

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

    return MinkUNet42(CHANNELS, None, width, engine, conv)


def resnet(
    make: Callable[..., PlannedModule], own: int, engine: Engine, size: int, width: float
) -> PlannedModule:
    """A sparse ResNet; its kernels have one size only."""
    if size != own:
        raise ValueError(f"this network has kernels of size {own}, not {size}")
    return make(CHANNELS, width, engine)


def resnet18(engine: Engine, size: int, width: float) -> PlannedModule:
    """The network of the PointCNN++ benchmark; its first kernel has size 5."""
    if size != KERNEL_SIZE["resnet18"]:
        raise ValueError(f"this network has kernels of size 3 after its first, not {size}")
    return ResNet18(CHANNELS, width=width, engine=engine)


#: Networks by name: of an engine, a kernel size and a width.
MODELS: dict[str, Callable[[Engine, int, float], PlannedModule]] = {
    "sparse_resnet": partial(resnet, SparseResNet21, 3),
    "sparse_resnet_large": partial(resnet, SparseResNetLarge, 5),
    "minkunet": minkunet,
}
#: Those, and what other suites measure.
NETWORKS = {**MODELS, "resnet18": resnet18}
#: Size of the kernels that name a network.
KERNEL_SIZE = {"sparse_resnet": 3, "sparse_resnet_large": 5, "minkunet": 3, "resnet18": 3}


def make_network(
    name: str, engine: Engine, size: int, width: float, device: torch.device
) -> PlannedModule:
    """Network with fixed random weights, the same for every engine, in float32.

    Made where it runs: 13^3 kernels have more than a thousand million weights.

    Args:
        name: a name in `NETWORKS`.
        engine: of all layers.
        size: of the kernels.
        width: factor on the channels.
        device: where.

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


def with_state(network: PlannedModule, state: dict[str, torch.Tensor]) -> PlannedModule:
    """Load weights and statistics into a network."""
    network.load_state_dict(state)
    return network.eval()


def converted(network: PlannedModule, dtype: torch.dtype) -> PlannedModule:
    """A copy of a network in another dtype."""
    return copy.deepcopy(network).to(dtype)


def features_of(outputs: object) -> list[torch.Tensor]:
    """Features of a network's output or outputs; logits of clouds as they are."""
    found = outputs if isinstance(outputs, list) else [outputs]
    tensors: list[torch.Tensor] = []
    for one in found:
        tensor = one.features if isinstance(one, SparseTensor) else one
        assert isinstance(tensor, torch.Tensor)
        tensors.append(tensor)
    return tensors


def parameters_of(network: nn.Module) -> dict[str, nn.Parameter]:
    """Parameters by name."""
    return dict(network.named_parameters())
