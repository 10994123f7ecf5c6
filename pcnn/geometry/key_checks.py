"""What the keys and row numbers of a geometry have to be.

Shapes and dtypes are checked always, contents on the host, where no device is waited for. Row
numbers, boxes and bounds take longer and are left to `VoxelGrid.validate` and `PointSet.validate`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pcnn.geometry.packing import KeyFormat


def check_integers(tensor: Tensor, shape: str, name: str) -> None:
    """Refuse what is not one row number or key after another, int64.

    Raises:
        ValueError: wrong shape or dtype.
    """
    if tensor.ndim != 1 or tensor.dtype != torch.int64:
        raise ValueError(f"{name} must be {shape} int64, got {tuple(tensor.shape)} {tensor.dtype}")


def check_order(
    keys: Tensor, batch_size: int, key_format: KeyFormat, unique: bool, subject: str
) -> None:
    """Refuse keys that do not ascend, or lie outside of the batch; waits for their device.

    Args:
        keys: ``[N]`` int64.
        batch_size: number of clouds.
        key_format: of the keys.
        unique: whether no key may come twice.
        subject: what has the keys, for the message.

    Raises:
        ValueError: keys that are unsorted, repeated where they must not be, or of no cloud.
    """
    if not len(keys):
        return
    wrong = keys[1:] <= keys[:-1] if unique else keys[1:] < keys[:-1]
    if bool(wrong.any()):
        row = int(wrong.nonzero()[0]) + 1
        kind = "repeated" if int(keys[row]) == int(keys[row - 1]) else "unsorted"
        raise ValueError(
            f"{subject}: keys must be sorted{' and unique' * unique}, but that of row {row} is "
            f"{kind}, and features would meet the wrong sites; pcnn.voxelize_cells and "
            "pcnn.voxelize bring cells and their features into order"
        )
    first, last = int(keys[0]), int(keys[-1])
    if first < 0 or last >> key_format.batch_shift >= batch_size:
        raise ValueError(
            f"{subject}: keys {first}..{last} lie outside the {batch_size} clouds of the batch"
        )


def check_rows(index: Tensor | None, rows: int, name: str) -> None:
    """Refuse row numbers that do not exist; waits for their device.

    Raises:
        ValueError: wrong shape or dtype, or a number outside ``0..rows - 1``.
    """
    if index is None:
        return
    check_integers(index, "[P]", name)
    if len(index):
        low, high = torch.stack(index.aminmax()).tolist()
        if low < 0 or high >= rows:
            raise ValueError(f"{name} holds rows {low}..{high}, but there are {rows}")
