"""Training scans kept on disk as one point per voxel, so that an epoch need not read full scans."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

import numpy as np
import torch

from pcnn.datasets.cloud import Cloud
from pcnn.errors import FileError
from pcnn.files.arrays import read_npz
from pcnn.files.bounded import named
from pcnn.files.whole_file import whole_file

log = logging.getLogger(__name__)

_FORMAT = 1


class CloudCache:
    """A folder of reduced clouds, one ``.npz`` a scan."""

    def __init__(self, folder: Path, recipe: Mapping[str, object]) -> None:
        text = json.dumps({"format": _FORMAT, **recipe}, sort_keys=True)
        self.folder = Path(folder) / hashlib.sha256(text.encode()).hexdigest()[:16]

    def find(self, name: str, sources: Sequence[Path]) -> Cloud | None:
        path = self.folder / f"{name}.npz"
        if not path.exists():
            return None
        try:
            entry, found = read_entry(path, path)
        except FileError as error:
            log.warning("rebuilding the corrupt cache entry %s (%s)", path, error)
            return None
        return entry if np.array_equal(found, _stamp(sources)) else None

    def put(self, name: str, sources: Sequence[Path], build: Callable[[], Cloud]) -> Cloud:
        stamp = _stamp(sources)  # of before the files are read
        cloud = build()
        with whole_file(self.folder / f"{name}.npz") as file:
            write_entry(file, cloud, stamp)
        return cloud


def _stamp(sources: Sequence[Path]) -> np.ndarray:
    stats = []
    for source in sources:
        with named(source, "file"):
            stats.append(source.stat())
    return np.array([(s.st_size, s.st_mtime_ns) for s in stats], dtype=np.int64)


#: Types and columns of the arrays of an entry: labels are train ids and `IGNORE`, which fit a byte.
_ARRAYS = {"points": (np.float32, 2), "features": (np.float32, 2), "labels": (np.uint8, 1)}
_ARRAYS |= {"point_index": (np.int64, 1)}


def read_entry(file: Path | IO[bytes], origin: Path) -> tuple[Cloud, np.ndarray]:
    """A cloud as `write_entry` wrote it, and the stamp of its sources."""
    data = read_npz(file, origin=origin)
    with named(origin, "cache entry"):
        found: dict[str, torch.Tensor | None] = {"labels": None, "point_index": None}
        for name, (kind, axes) in _ARRAYS.items():
            array = data.get(name)
            if array is None and name in found:
                continue
            if array is None or array.dtype != kind or array.ndim != axes:
                raise FileError(origin, f"{name} must be {axes}-d {np.dtype(kind)}, found {array}")
            found[name] = torch.from_numpy(array)
        labels = found.pop("labels")
        cloud = Cloud(
            **found,  # type: ignore[arg-type]  # by name
            labels=None if labels is None else labels.long(),
            name=str(data["name"]),
            path=str(data["path"]),
            n_points_total=int(data["n_points_total"]),
        )
        return cloud, data["stamp"]


def write_entry(file: IO[bytes], cloud: Cloud, stamp: np.ndarray) -> None:
    arrays = {
        "stamp": stamp,
        "name": np.array(cloud.name),
        "path": np.array(cloud.path),
        "n_points_total": np.array(cloud.n_points_total),
    }
    for name, (kind, _) in _ARRAYS.items():
        values = getattr(cloud, name)
        if values is not None:
            arrays[name] = values.numpy().astype(kind, copy=False)
    np.savez(file, **arrays)  # type: ignore[arg-type]  # by name
