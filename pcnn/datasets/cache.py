"""Training scans kept on disk as one point per voxel, so that an epoch need not read full scans."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

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
    """A folder of reduced clouds, one ``.npz`` a scan.

    Entries of one recipe share a folder named by the recipe's hash; each entry carries the size
    and the modification time of its source files and is rebuilt when they changed or when it
    cannot be read. Entries are written whole and renamed, so processes may share the folder.
    """

    def __init__(self, folder: Path, recipe: Mapping[str, object]) -> None:
        text = json.dumps({"format": _FORMAT, **recipe}, sort_keys=True)
        self.folder = Path(folder) / hashlib.sha256(text.encode()).hexdigest()[:16]

    def get(self, name: str, sources: Sequence[Path], build: Callable[[], Cloud]) -> Cloud:
        """Return the entry ``name``, built when it is absent, stale or corrupt."""
        found = self.find(name, sources)
        if found is not None:
            return found
        stamp = _stamp(sources)  # of before the files are read
        cloud = build()
        _write(self._path(name), cloud, stamp)
        return cloud

    def find(self, name: str, sources: Sequence[Path]) -> Cloud | None:
        """Return the entry ``name``; None when it is absent, stale or corrupt."""
        path = self._path(name)
        if not path.exists():
            return None
        try:
            entry, found = _read(path)
        except FileError as error:
            log.warning("rebuilding the corrupt cache entry %s (%s)", path, error)
            return None
        return entry if np.array_equal(found, _stamp(sources)) else None

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.npz"


def _stamp(sources: Sequence[Path]) -> np.ndarray:
    stats = []
    for source in sources:
        with named(source, "file"):
            stats.append(source.stat())
    return np.array([(s.st_size, s.st_mtime_ns) for s in stats], dtype=np.int64)


def _read(path: Path) -> tuple[Cloud, np.ndarray]:
    data = read_npz(path)
    with named(path, "cache entry"):
        points, features, labels = data["points"], data["features"], data.get("labels")
        rows = len(points)
        if points.dtype != np.float32 or points.shape != (rows, 3):
            raise FileError(path, f"points are {points.dtype} {list(points.shape)}")
        if features.dtype != np.float32 or features.ndim != 2 or len(features) != rows:
            raise FileError(path, f"features are {features.dtype} {list(features.shape)}")
        if labels is not None and (labels.dtype != np.uint8 or labels.shape != (rows,)):
            raise FileError(path, f"labels are {labels.dtype} {list(labels.shape)}")
        cloud = Cloud(
            torch.from_numpy(points),
            torch.from_numpy(features),
            None if labels is None else torch.from_numpy(labels).long(),
            str(data["name"]),
            str(data["path"]),
            n_points_total=int(data["n_points_total"]),
        )
        return cloud, data["stamp"]


def _write(path: Path, cloud: Cloud, stamp: np.ndarray) -> None:
    """A reduced cloud as arrays by name; labels are train ids and `IGNORE`, which fit a byte."""
    arrays = {
        "stamp": stamp,
        "points": cloud.points.numpy(),
        "features": cloud.features.numpy(),
        "name": np.array(cloud.name),
        "path": np.array(cloud.path),
        "n_points_total": np.array(cloud.n_points_total),
    }
    if cloud.labels is not None:
        arrays["labels"] = cloud.labels.numpy().astype(np.uint8)
    with whole_file(path) as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]  # by name
