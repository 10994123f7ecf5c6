"""Clouds that are kept: training scans as one point a voxel in a cache, prepared ones in shards.

A folder of shards of a split holds ``0000.npzs``, ``0001.npzs``, ... of entries of the cache one
after another, and ``index.json``, which says where each lies and how the clouds were made. It may
lie on a mounted store: a cloud is one read of its own bytes. The order of the clouds is that of the
index, so a sample stays a function of (seed, epoch, index).
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import torch

from pcnn.datasets.cloud import Cloud
from pcnn.errors import UNREADABLE, ConfigError, FileError
from pcnn.files.bounded import named, read_json
from pcnn.files.whole_file import whole_file

if TYPE_CHECKING:
    from pcnn.datasets.cloud_dataset import CloudDataset

log = logging.getLogger(__name__)

_FORMAT = 2


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
    with named(origin, "cache entry"), np.load(file) as data:
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


INDEX = "index.json"
#: Bytes after which a new file is begun.
SIZE = 1 << 30


def write_shards(
    dataset: CloudDataset, folder: Path, facts: Mapping[str, Any], told: Callable[[], object]
) -> int:
    """Write the stored clouds of a set; returns how many."""
    entries: list[tuple[str, int, int, int]] = []
    number, start = -1, SIZE
    with ExitStack() as stack:
        for index in range(len(dataset)):
            told()
            try:
                cloud, _ = dataset.keep(index)
            except UNREADABLE as error:
                log.warning("left out of the shards: %s", error)
                continue
            if start >= SIZE:
                stack.close()
                number, start = number + 1, 0
                file = stack.enter_context(whole_file(folder / shard(number)))
            content = io.BytesIO()
            write_entry(content, cloud, np.zeros(0, np.int64))
            size = file.write(content.getvalue())
            entries.append((cloud.name, number, start, size))
            start += size
    made = {**facts, "recipe": dataset.recipe, "channels": dataset.channels, "clouds": entries}
    with whole_file(folder / INDEX) as listing:
        listing.write(json.dumps(made).encode())
    return len(entries)


def shard(number: int) -> str:
    return f"{number:04d}.npzs"


class ShardedClouds:
    """The clouds of a folder of shards, as `pcnn.datasets.LabelledClouds`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        index = read_json(folder / INDEX)
        with named(folder / INDEX, "index of shards"):
            self.channels = tuple(map(str, index["channels"]))
            self.facts: dict[str, Any] = {key: index[key] for key in ("kind", "recipe", "classes")}
            self._clouds = [(str(n), int(s), int(a), int(b)) for n, s, a, b in index["clouds"]]

    def __len__(self) -> int:
        return len(self._clouds)

    def name(self, index: int) -> str:
        return self._clouds[index][0]

    def sources(self, index: int) -> Sequence[Path]:
        return [self.folder / shard(self._clouds[index][1])]

    def recipe(self) -> Mapping[str, object]:
        return {"set": "shards"}

    def read(self, index: int) -> Cloud:
        (path,) = self.sources(index)
        _, _, start, size = self._clouds[index]
        with named(path, "shard"), path.open("rb") as file:
            file.seek(start)
            content = file.read(size)
        if len(content) < size:
            raise FileError(path, f"cut off: {len(content)} of {size} bytes from {start} on")
        return read_entry(io.BytesIO(content), path)[0]

    def check(self, **asked: Any) -> None:
        """Refuse shards that were made for another training."""
        for key, value in json.loads(json.dumps(asked)).items():
            if self.facts[key] != value:
                raise ConfigError(
                    "dataset.shards", f"{self.folder} has {key} {self.facts[key]}, not {value}"
                )
