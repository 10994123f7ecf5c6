"""The peak memory of a training step by its parts, beside the least that it can be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from pcnn.bench.clouds import room
from pcnn.bench.harness import DIGITS, peak_memory_mb
from pcnn.bench.layers.layer import products_of
from pcnn.bench.native.largest import clear
from pcnn.bench.native.network import CheckedNetworks, network_case
from pcnn.bench.networks.work import Work
from pcnn.bench.rows import Row
from pcnn.bench.run import Columns, run
from pcnn.bench.setting import NativeSetting, Setting
from pcnn.ops.prefetch import tensors_of
from pcnn.tensor import SparseTensor

MB = 2**20


def breakdown_rows(setting: NativeSetting, figure: str) -> Iterator[Row]:
    """Of a training step of ResNet18: what it must hold, and on a GPU the allocator's peak.

    ``needed_mb`` is the sum of activations that backward reads, weights, their gradients, and sites
    with maps and layouts; ``over_needed`` is the peak of a step on planned input over it,
    ``from_points`` that of a step that plans, too. Each tensor's memory counts once; the cloud
    itself, which its reader holds, does not.
    """
    with products_of(setting.dtype_name):
        checked = CheckedNetworks(setting)
        scans = setting.scans() if setting.clouds else ()
        for cloud in [*scans, room(0, max(setting.size_list), setting.where)]:
            for variant in setting.variants:
                row = checked.row(variant, cloud, figure, "step")
                case = network_case(checked, variant, "train", cloud, row, breakdown)
                yield from run([case], setting)


def breakdown(work: Work, setting: Setting, count: bool) -> Iterator[Columns]:
    """Parts of the memory of a step, in the settings of its row; the peak is its memory."""
    work.network.train()
    x = work.input.on(work.network, backward=True)
    weights = list(work.network.parameters())
    work.train(x)  # builds layouts that are not planned, compiles and warms up
    work.train(x)
    layouts = bytes_of(tensors_of(x), ())
    activations = kept_bytes(work, x, [*weights, *tensors_of(x)])
    own = sum(weight.nbytes for weight in weights)
    needed = layouts + activations + 2 * own  # weights, and gradients of their size
    found: dict[str, float] = {
        "activations_mb": activations / MB,
        "weights_mb": own / MB,
        "gradients_mb": own / MB,
        "layouts_mb": layouts / MB,
        "needed_mb": needed / MB,
    }
    if setting.where.type == "cuda":
        clear()
        # in memory are the network, the cloud, and the planned input
        held = layouts + own
        peak = held + MB * peak_memory_mb(lambda: work.train(x), setting.where)
        del x
        clear()
        from_points = own + MB * peak_memory_mb(work.train, setting.where)
        found |= {
            "peak_mb": peak / MB,
            "over_needed": peak / needed,
            "from_points_mb": from_points / MB,
            "from_points": from_points / needed,
        }
    params = {name: round(value, DIGITS) for name, value in found.items()}
    yield {"memory_mb": params.get("peak_mb"), "params": params}


def kept_bytes(work: Work, x: SparseTensor, others: Iterable[Tensor]) -> int:
    """Bytes of the tensors that a forward pass keeps for backward."""
    kept: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        outputs = work.outputs(x)
    found = bytes_of(kept, others)
    del outputs
    return found


def bytes_of(tensors: Iterable[Tensor], others: Iterable[Tensor]) -> int:
    """Bytes of the memory behind tensors on their device, each piece once, without that of others.

    Args:
        tensors: counted; what lies on another device than the first of them is not.
        others: left out.
    """
    known = {tensor.untyped_storage().data_ptr() for tensor in others}
    total, device = 0, None
    for tensor in tensors:
        device = device or tensor.device
        storage = tensor.untyped_storage()
        if tensor.device == device and storage.data_ptr() not in known:
            known.add(storage.data_ptr())
            total += storage.nbytes()
    return total
