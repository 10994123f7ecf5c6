"""Decisions of tuning about a product; asked before every product, so it answers from memory."""

from __future__ import annotations

import functools
import importlib.metadata
import math
import platform

import torch

from pcnn.dataflows.base import Dataflow
from pcnn.dataflows.products import Product
from pcnn.dataflows.tuning_file import read, shipped_path, user_path
from pcnn.dataflows.tuning_table import Signature, TuningTable
from pcnn.kernels.tf32 import tf32_allowed


def tuned(
    usual: Dataflow, device: torch.device, product: Product, volume: int, rows: int
) -> Dataflow:
    """The dataflow that was quickest for a product on this device, or one of nearly its size.

    Only dataflows that read the layouts of the usual one are taken: a map is laid out before its
    products are known. The user's own table counts before the package's where both are equally
    near. Files are read at the first request of a process; nothing here waits for the device.
    """
    name, dtype, c_in, c_out, groups = product
    layouts = usual.needs_weight_grad if name == "vvor" else usual.needs
    key = (_dtype_name(dtype), c_in, c_out, groups, volume, name)
    return _tuned(device, key, _size(rows), layouts) or usual


def tuned_products(
    usual: Dataflow,
    device: torch.device,
    sizes: tuple[torch.dtype, int, int, int],
    volume: int,
    rows: tuple[int, int],
) -> tuple[Dataflow, Dataflow, Dataflow]:
    """The same for all products of a layer, in the order of `PRODUCTS`, in one look-up."""
    n_in, n_out = rows
    name = _dtype_name(sizes[0])  # may change between calls
    return _tuned_products(usual, device, name, sizes, volume, _size(n_in), _size(n_out))


def _size(rows: int) -> int:
    return round(math.log2(rows)) if rows > 1 else 0


@functools.lru_cache(maxsize=65536)
def _tuned_products(
    usual: Dataflow,
    device: torch.device,
    name: str,
    sizes: tuple[torch.dtype, int, int, int],
    volume: int,
    size_in: int,
    size_out: int,
) -> tuple[Dataflow, Dataflow, Dataflow]:
    def found(product: str, size: int) -> Dataflow:
        layouts = usual.needs_weight_grad if product == "vvor" else usual.needs
        return _tuned(device, (name, *sizes[1:], volume, product), size, layouts) or usual

    return found("forward", size_out), found("transposed", size_in), found("vvor", size_out)


@functools.lru_cache
def has_decisions(device: torch.device) -> bool:
    """True if there is a table to ask; most processes have none."""
    return any(len(table) for table in tables(device))


@functools.lru_cache(maxsize=65536)
def _tuned(
    device: torch.device,
    key: tuple[str, int, int, int, int, str],
    size: int,
    layouts: tuple[str, ...],
) -> Dataflow | None:
    name, triton = place(device)
    signature = Signature(name, triton, *key)
    found = (table.nearest(signature, size, layouts) for table in tables(device))
    near = [one for one in found if one is not None]
    return min(near, key=lambda one: one[0])[1] if near else None


def signature_of(device: torch.device, product: Product, volume: int) -> Signature:
    """The key of a product with this device and this version of Triton."""
    name, dtype, c_in, c_out, groups = product
    return Signature(*place(device), _dtype_name(dtype), c_in, c_out, groups, volume, name)


def _dtype_name(dtype: torch.dtype) -> str:
    """Name of the operands' dtype: float32 may be TF32, which other settings suit."""
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
def tables(device: torch.device) -> tuple[TuningTable, ...]:
    """The user's table, then the package's for a device."""
    found = []
    try:
        found.append(read(user_path()))
    except RuntimeError:  # no home folder: nothing was ever stored there
        found.append(TuningTable())
    if device.type == "cuda":
        found.append(read(shipped_path(torch.cuda.get_device_name(device))))
    return tuple(found)


def forget() -> None:
    """Read the files again at the next request: something was tuned since."""
    _tuned_products.cache_clear()
    _tuned.cache_clear()
    tables.cache_clear()
    has_decisions.cache_clear()
