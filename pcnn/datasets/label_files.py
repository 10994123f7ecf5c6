"""SemanticKITTI ``.label`` files: one uint32 a point, class id below, instance id above."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pcnn.datasets.whole_file import whole_file
from pcnn.errors import FileError
from pcnn.files.named import named


def read_label_file(path: Path, n_points: int) -> np.ndarray:
    """Read the words of a label file.

    Args:
        path: little-endian uint32, one word a point.
        n_points: number of points of the scan the labels belong to.

    Returns:
        [P] uint32; the class is ``word & 0xFFFF``, the instance ``word >> 16``.

    Raises:
        MissingFileError: no such file.
        FileError: a size that is no multiple of 4, or another count than the scan's.
    """
    with named(path, ".label file"):
        size = path.stat().st_size
        if size % 4:
            raise FileError(path, f"{size} bytes are no whole number of 4-byte labels; truncated?")
        if size // 4 != n_points:
            raise FileError(path, f"{size // 4} labels for a scan of {n_points} points")
        return np.fromfile(path, dtype="<u4")


def write_label_file(path: Path, raw: np.ndarray) -> None:
    """Write class ids as an official prediction file, whole or not at all.

    Args:
        path: the file, in the official layout ``sequences/XX/predictions/NNNNNN.label``.
        raw: [P] raw ids in 0..65535, for every point of the scan, in its order.

    Raises:
        ValueError: ids out of range.
    """
    raw = np.asarray(raw)
    if raw.size and (raw.min() < 0 or raw.max() > 0xFFFF):
        raise ValueError(f"{path}: class ids must fit 16 bits, got {raw.min()}..{raw.max()}")
    with whole_file(path) as file:
        file.write(raw.astype("<u4").tobytes())
