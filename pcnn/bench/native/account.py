"""What the peak of a training step is made of, held against what it must hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from pcnn.bench.harness import DIGITS, peak_memory_mb
from pcnn.bench.layers.layer import products_of
from pcnn.bench.native.cloud import Cloud
from pcnn.bench.native.limits import clear
from pcnn.bench.native.lines import Line
from pcnn.bench.native.network import Checked
from pcnn.bench.native.rooms import room
from pcnn.bench.native.setting import Setting
from pcnn.bench.networks.models import parameters_of
from pcnn.bench.networks.work import Work
from pcnn.bench.rows import Row
from pcnn.ops.prefetch import tensors_of
from pcnn.tensor import SparseTensor

MB = 2**20


def account_rows(setting: Setting, figure: str) -> Iterator[Row]:
    """Of a training step of ResNet18: what it must hold, and on a GPU the allocator's peak.

    ``needed_mb`` is the sum of activations that backward reads, weights, their gradients, and sites
    with maps and layouts; ``over_needed`` is the peak of a step on planned input over it,
    ``from_points`` that of a step that plans, too. Each tensor's memory counts once; the cloud
    itself, which its reader holds, does not.
    """
    with products_of(setting.dtype):
        checked = Checked(setting)
        scans = setting.scans() if setting.clouds else ()
        clouds = [*scans, room(0, max(setting.sizes), setting.device)]
        for cloud in clouds:
            for line in setting.lines:
                identity = checked.identity(line, cloud, figure, "step")
                try:
                    found = _account(setting, checked, line, cloud)
                except Exception as error:  # a compiler's errors have no base of their own
                    identity["params"]["left_out"] = f"{type(error).__name__}: {error}"
                    yield Row("network", **identity)
                    continue
                identity["params"] |= found
                yield Row("network", memory_mb=found.get("peak_mb"), checked=True, **identity)


def _account(setting: Setting, checked: Checked, line: Line, cloud: Cloud) -> dict[str, Any]:
    work = checked.work(line, "train", cloud)
    work.network.train()
    x = work.input.on(work.network, backward=True)
    weights = list(parameters_of(work.network).values())
    work.train(x)  # builds layouts that nobody has planned, compiles and warms up
    work.train(x)
    layouts = bytes_of(tensors_of(x), ())
    activations = kept_bytes(work, x, [*weights, *tensors_of(x)])
    own = sum(weight.nbytes for weight in weights)
    needed = layouts + activations + 2 * own  # weights, and gradients of their size
    found: dict[str, Any] = {
        "activations_mb": activations / MB,
        "weights_mb": own / MB,
        "gradients_mb": own / MB,
        "layouts_mb": layouts / MB,
        "needed_mb": needed / MB,
    }
    if setting.device.type == "cuda":
        clear()
        # what lies there is the network, the cloud, and the planned input
        held = layouts + own
        peak = held + MB * peak_memory_mb(lambda: work.train(x), setting.device)
        del x
        clear()
        from_points = own + MB * peak_memory_mb(work.train, setting.device)
        found |= {
            "peak_mb": peak / MB,
            "over_needed": peak / needed,
            "from_points_mb": from_points / MB,
            "from_points": from_points / needed,
        }
    return {name: round(value, DIGITS) for name, value in found.items()}


def kept_bytes(work: Work, x: SparseTensor, others: Iterable[Tensor]) -> int:
    """Bytes of the tensors that a forward pass keeps for backward.

    Args:
        work: the network.
        x: its planned input.
        others: tensors that are there anyway.
    """
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
