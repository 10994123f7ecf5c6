"""Point clouds of tensors from files of all formats."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from pcnn.datasets.cloud import Cloud
from pcnn.datasets.readers.channels import Reading
from pcnn.datasets.readers.points import MISSING, read_table, strict_rule
from pcnn.datasets.readers.table import rounded_points, valid_returns
from pcnn.errors import FileError
from pcnn.files.bounded import named
from pcnn.plural import counted

_PLAIN = Reading()


def read_points(path: str | Path, name: str | None = None, reading: Reading = _PLAIN) -> Cloud:
    """Read a cloud: positions [m], further channels, and labels where the file itself holds them.

    * ``.bin``: float32 x, y, z, intensity (KITTI), in ``.pcd.bin`` also ring (nuScenes); a file
      whose numbers do not look like them is refused unless ``reading.columns`` names its columns.
    * ``.npy``: [N, 3 + F] numbers: x, y, z and F further columns without names, or one that is
      the intensity; or [N] with named fields.
    * ``.ply``: float x, y, z; ``intensity`` (or ``remission``, ``reflectance``) and ``red``,
      ``green``, ``blue`` (integers are divided by their largest value) become the channels, in
      this order; an integer ``label`` or ``class`` (also with CloudCompare's ``scalar_``) the
      labels, as they are.
    * ``.pcd``: float x, y, z; intensity and colours, also packed into ``rgb`` or ``rgba``; labels
      as in ``.ply``.
    * ``.txt`` (also called ``.xyz``, ``.csv``, ``.asc``), ``.npz``: see
      `pcnn.datasets.readers.plain_files`.
    * ``.las``, ``.laz``: x, y, z; intensity / 65535, and colours in 0..1 where the point format has
      them, become the channels, ``classification`` the labels, as it is. Needs the extra ``las``.

    Names of fields count in any case. Missing returns, and points with a channel that is NaN or
    infinite, are left out: ``point_index`` says where the others lie, and ``n_points_total`` counts
    all.

    Args:
        path: the file; its suffix, in any case, says the format.
        name: name of the cloud; the file's stem unless given.
        reading: other channels, names of columns, and where the origin lies.

    Returns:
        A cloud of the points of the file.

    Raises:
        MissingFileError: no such file.
        MissingPackageError: a package that the format needs is not installed.
        FileError: another suffix, a file that breaks its format, a channel that it lacks,
            nothing but missing returns, or some where ``reading.strict`` refuses them, or
            coordinates too large for float32; the message names the file and the rule.
    """
    path = Path(path)
    with named(path, f"{path.suffix} file"):
        return _cloud(path, name, reading)


def _cloud(path: Path, name: str | None, reading: Reading) -> Cloud:
    table = read_table(path, reading)
    channels = reading.values(table)
    valid = valid_returns(table.places) & np.isfinite(channels).all(axis=1)
    places, labels = table.places, table.labels
    rows = np.arange(len(table))
    if not valid.all():
        if not valid.any():
            raise FileError(path, f"all {counted(len(valid), 'point')} are {MISSING}")
        if reading.strict:
            raise FileError(path, strict_rule(valid))
        rows = np.flatnonzero(valid)
        places, channels = places[rows], channels[rows]
        labels = None if labels is None else labels[rows]
    if reading.scale != 1.0:
        places = places.astype(np.float64) * reading.scale
    origin = reading.origin(places, table.in_map)
    x, y, z = origin.tolist()
    return Cloud(
        torch.from_numpy(rounded_points(places - origin if origin.any() else places, path)),
        torch.from_numpy(channels),
        None if labels is None else torch.from_numpy(labels),
        path.stem if name is None else name,
        str(path),
        torch.from_numpy(rows),
        n_points_total=len(table),
        origin=(x, y, z),
    )
