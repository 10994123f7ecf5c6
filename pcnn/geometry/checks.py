"""Checks of points, cells, keys and row numbers."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index

import numpy as np
import torch
from torch import Tensor

from pcnn.geometry.kernel_slots import Triple
from pcnn.geometry.packing import BATCH_SHIFT, MAX_BATCH


def check_integers(tensor: Tensor, shape: str, name: str) -> None:
    """Refuse what is not one row number or key after another, int64."""
    if tensor.ndim != 1 or tensor.dtype != torch.int64:
        raise ValueError(f"{name} must be {shape} int64, got {tuple(tensor.shape)} {tensor.dtype}")


def check_order(keys: Tensor, batch_size: int, unique: bool, subject: str) -> None:
    """Refuse keys that do not ascend, or lie outside of the batch; waits for their device."""
    if not len(keys):
        return
    wrong = keys[1:] <= keys[:-1] if unique else keys[1:] < keys[:-1]
    if bool(wrong.any()):
        row = int(wrong.nonzero()[0]) + 1
        kind = "repeated" if int(keys[row]) == int(keys[row - 1]) else "unsorted"
        raise ValueError(
            f"{subject}: keys must be sorted{' and unique' * unique}, but that of row {row} is "
            f"{kind}; pcnn.from_coordinates and pcnn.voxelize order cells with their features"
        )
    first, last = int(keys[0]), int(keys[-1])
    if first < 0 or last >> BATCH_SHIFT >= batch_size:
        raise ValueError(
            f"{subject}: keys {first}..{last} lie outside the {batch_size} clouds of the batch"
        )


def check_points(points: Tensor, batch: Tensor | None) -> None:
    """Refuse points that are not ``[P, 3]`` floating point, or a batch that is not ``[P]``."""
    require_tensors(points=points, batch=batch)
    if points.ndim != 2 or points.shape[1] != 3 or not points.is_floating_point():
        found = f"{tuple(points.shape)} {points.dtype}"
        raise ValueError(f"points must be [P, 3] floating point, got {found}")
    if batch is not None:
        check_batch(batch, len(points))


def check_features(features: Tensor, rows: int) -> None:
    """Refuse features that are not ``[rows, C]`` floating point: sums of bytes would run over."""
    if features.ndim != 2 or features.shape[0] != rows or not features.is_floating_point():
        found = f"{tuple(features.shape)} {features.dtype}"
        raise ValueError(f"features must be [{rows}, C] floating point, got {found}")


def check_batch(batch: Tensor, rows: int) -> None:
    """Refuse a batch that is not ``[rows]`` integers: fractions would be cut off without a word."""
    if batch.shape != (rows,):
        raise ValueError(f"batch must be [{rows}], got {tuple(batch.shape)}")
    if batch.is_floating_point() or batch.is_complex() or batch.dtype == torch.bool:
        raise ValueError(f"batch must hold integers, the cloud of every point; got {batch.dtype}")


def clouds_of(first: int, last: int, batch_size: int | None) -> int:
    """Number of clouds of batch indices, or the one given; refuses those that do not fit it."""
    clouds = last + 1 if batch_size is None else index(batch_size)
    if first < 0 or last >= clouds:
        raise ValueError(f"batch indices {first}..{last} do not fit {clouds} clouds")
    if not 1 <= clouds <= MAX_BATCH:
        raise ValueError(f"a batch holds 1 to {MAX_BATCH} clouds, got {clouds}")
    return clouds


def check_finite(points: Tensor) -> None:
    """Refuse NaN and infinite coordinates."""
    refuse_rows(~torch.isfinite(points).all(1), "points are NaN or infinite")


def refuse_rows(wrong: Tensor, what: str) -> None:
    """Refuse rows of which a test ``[N]`` bool says that they are wrong; waits for its device."""
    if bool(wrong.any()):
        first = int(wrong.nonzero()[0])
        raise ValueError(f"{int(wrong.sum())} of {len(wrong)} {what}, the first is {first}")


def voxel_sizes(
    voxel_size: float | Sequence[float], name: str = "voxel_size"
) -> tuple[float, float, float]:
    """Edge of a voxel along x, y and z [m]."""
    try:
        size = torch.as_tensor(voxel_size, dtype=torch.float64).flatten().tolist()
    except (TypeError, ValueError):  # texts, None
        size = []
    size = size * 3 if len(size) == 1 else size
    if len(size) != 3 or not all(0 < edge < float("inf") for edge in size):
        raise ValueError(f"{name} must be positive [m], one number or three, got {voxel_size!r}")
    return size[0], size[1], size[2]


def check_cells(cells: Tensor) -> None:
    """Refuse cells that are not ``[P, 3]`` whole numbers; of floats the device is waited for."""
    if cells.ndim != 2 or cells.shape[1] != 3:
        hint = "; (batch, x, y, z) goes in as cells[:, 1:] and batch=cells[:, 0]"
        hint *= cells.ndim == 2 and cells.shape[1] == 4
        raise ValueError(f"cells must be [P, 3] (x, y, z), got {tuple(cells.shape)}{hint}")
    if cells.is_complex() or cells.dtype == torch.bool:
        raise ValueError(f"cells must hold whole numbers, got {cells.dtype}")
    if cells.is_floating_point():
        whole = ((cells == cells.floor()) & cells.isfinite()).all(1)
        refuse_rows(~whole, "rows are fractional, NaN or infinite, and no cells")


def check_on_stride(cells: Tensor, stride: Triple) -> None:
    """Refuse cells ``[P, 3]`` that are no multiples of a stride; the device is waited for."""
    if stride == (1, 1, 1):
        return
    off = (cells % torch.tensor(stride, device=cells.device) != 0).any(1)
    refuse_rows(off, f"cells are no multiples of tensor_stride {stride}, in level-0 voxels")


def as_tensor(values: Tensor | np.ndarray, name: str) -> Tensor:
    """A tensor of an array of numbers, which it shares where torch can; a tensor passes."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "biuf":
        # torch has few operations on unsigned numbers of more than eight bits
        kind = np.int64 if values.dtype.str[1:] in ("u2", "u4") else values.dtype.newbyteorder("=")
        native = values.astype(kind, copy=not values.flags.writeable)
        values = torch.from_numpy(np.ascontiguousarray(native))
    require_tensors(**{name: values})
    assert isinstance(values, Tensor)
    return values


def require_tensors(**arguments: object) -> None:
    """Refuse what is no tensor; None passes."""
    for name, value in arguments.items():
        if value is not None and not isinstance(value, Tensor):
            found = f"{name} must be a torch.Tensor, got {type(value).__name__}"
            raise TypeError(f"{found}; pass torch.as_tensor({name})")
        if isinstance(value, Tensor) and value.dtype in (torch.uint16, torch.uint32, torch.uint64):
            raise TypeError(f"{name} must have signed numbers, got {value.dtype}: pass int64")
