"""``.bin`` files: float32 numbers point after point, with nothing that says how many a point."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pcnn.datasets.column_count import is_contradicted
from pcnn.datasets.plain_columns import LAYOUTS, Columns, advice, plain_table
from pcnn.datasets.point_table import PointTable
from pcnn.errors import FileError
from pcnn.files.limits import LIMIT, check_size

_BYTES = 4


def read_bin(path: Path, columns: Columns | None = None, limit: float = LIMIT) -> PointTable:
    """Read a file of float32 numbers.

    Args:
        path: the file.
        columns: names of its columns; None: those of nuScenes for ``NAME.pcd.bin``, else those of
            KITTI, if the numbers agree with them.
        limit: its largest size [GiB].

    Returns:
        Its points, missing returns among them.

    Raises:
        FileError: a size that holds no whole number of points, numbers that a column cannot
            hold, or that tell of another number of columns; the message names the likely columns.
    """
    told = columns is not None
    if columns is None:
        columns = LAYOUTS["nuscenes" if path.name.lower().endswith(".pcd.bin") else "kitti"]
    size = path.stat().st_size
    check_size(path, size, limit)
    values = np.fromfile(path, dtype="<f4")
    width = _BYTES * len(columns)
    if size % width:
        # a torn file of these columns still looks like them
        torn = told or size % _BYTES or not is_contradicted(values, len(columns))
        raise FileError(
            path,
            f"{size} bytes are not a whole number of {width}-byte points (float32 {columns})"
            + ("; truncated?" if torn else advice(values)),
        )
    if not told and is_contradicted(values, len(columns)):
        raise FileError(path, f"the numbers are not those of columns {columns}{advice(values)}")
    try:
        return plain_table(path, values.reshape(-1, len(columns)), columns)
    except FileError as error:
        raise FileError(path, error.rule + ("" if told else advice(values))) from error
