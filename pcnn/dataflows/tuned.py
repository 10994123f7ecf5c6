"""What the tables say about a product; asked before every product, so it answers from memory."""

from __future__ import annotations

import functools
import importlib.metadata
import math
import platform

import torch

from pcnn.dataflows.base import Dataflow
from pcnn.dataflows.tuning_file import read, shipped_path, user_path
from pcnn.dataflows.tuning_table import Signature, TuningTable
from pcnn.kernels.tf32 import tf32_allowed


def tuned(
    device: torch.device,
    dtype: torch.dtype,
    c_in: int,
    c_out: int,
    volume: int,
    product: str,
    rows: int,
    pairs_per_row: float | None = None,
    groups: int = 1,
    layouts: tuple[str, ...] | None = None,
) -> Dataflow | None:
    """The dataflow that was quickest for a product on this device, or one of nearly its size.

    The user's own table counts before the package's where both are equally near. Files are read at
    the first request of a process; nothing here waits for the device.

    Args:
        device: where the product is computed.
        dtype: that operands are rounded to.
        c_in: input channels of the layer, whatever the product.
        c_out: output channels of the layer.
        volume: kernel slots K.
        product: ``forward``, ``transposed`` or ``vvor``.
        rows: rows of the product's output side; of a vvor, of its gradients.
        pairs_per_row: mean number of triplets of such a row, ``None`` where nobody has counted.
        groups: groups of channels.
        layouts: those at hand; ``None``: any dataflow will do.

    Returns:
        ``None`` where no table has a decision within reach.
    """
    size = round(math.log2(rows)) if rows > 1 else 0
    pairs = round(2 * math.log2(pairs_per_row)) / 2 if pairs_per_row else None
    key = (_dtype_name(dtype), c_in, c_out, groups, volume, product)
    return _tuned(device, key, size, pairs, layouts)


@functools.lru_cache
def has_decisions(device: torch.device) -> bool:
    """Whether there is a table to ask; most processes have none."""
    return any(len(table) for table in _tables(device))


@functools.lru_cache(maxsize=65536)
def _tuned(
    device: torch.device,
    key: tuple[str, int, int, int, int, str],
    size: int,
    pairs: float | None,
    layouts: tuple[str, ...] | None,
) -> Dataflow | None:
    name, triton = place(device)
    signature = Signature(name, triton, *key)
    found = (table.nearest(signature, size, pairs, layouts) for table in _tables(device))
    near = [one for one in found if one is not None]
    return min(near, key=lambda one: one[0])[1] if near else None


def signature_of(
    device: torch.device,
    dtype: torch.dtype,
    c_in: int,
    c_out: int,
    groups: int,
    volume: int,
    product: str,
) -> Signature:
    """The key of a product on a device and with the Triton that are there."""
    return Signature(*place(device), _dtype_name(dtype), c_in, c_out, groups, volume, product)


def _dtype_name(dtype: torch.dtype) -> str:
    """What is multiplied: float32 operands may be TF32, which other settings suit."""
    if dtype is torch.float32:
        return "tf32" if tf32_allowed() else "float32"
    return _NAMES.get(dtype) or str(dtype).removeprefix("torch.")


_NAMES = {torch.float16: "float16", torch.bfloat16: "bfloat16", torch.float64: "float64"}


@functools.lru_cache
def place(device: torch.device) -> tuple[str, str]:
    """Name and architecture of a device, and the version of Triton that compiles for it."""
    if device.type != "cuda":
        return f"{device.type} {platform.machine()}", "none"
    major, minor = torch.cuda.get_device_capability(device)
    try:
        version = ".".join(importlib.metadata.version("triton").split(".")[:2])
    except importlib.metadata.PackageNotFoundError:
        version = "none"
    return f"{torch.cuda.get_device_name(device)} sm_{major}{minor}", version


@functools.lru_cache
def _tables(device: torch.device) -> tuple[TuningTable, ...]:
    """The user's table, then the package's for a device."""
    tables = []
    try:
        tables.append(read(user_path()))
    except RuntimeError:  # no home folder: nothing was ever stored there
        tables.append(TuningTable())
    if device.type == "cuda":
        tables.append(read(shipped_path(torch.cuda.get_device_name(device))))
    return tuple(tables)


def forget() -> None:
    """Read the files again at the next request: something was tuned since."""
    _tuned.cache_clear()
    _tables.cache_clear()
    has_decisions.cache_clear()
