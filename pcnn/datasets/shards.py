"""Training clouds as shards: a few large tar files on a disk, a server or an object store.

A shard is a plain tar file in the layout of WebDataset, one member ``NAME.npz`` a cloud, so its
tools read it too. Here clouds are found through an index, ``index.npz``, and read by their ranges
of bytes: any cloud at any time, as from single files. So the order of a training, its augmentation
and its resume are those of a folder, bit by bit, and a machine reads what it trains on, no more.
"""

from __future__ import annotations

import functools
import io
import json
import os
import tarfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from pcnn.datasets.cache import arrays_of, cloud_of
from pcnn.datasets.cloud import Cloud
from pcnn.datasets.cloud_dataset import CloudDataset
from pcnn.errors import FileError
from pcnn.files.arrays import read_npz, read_npz_bytes
from pcnn.files.whole_file import whole_file

INDEX = "index.npz"
_FORMAT = 1


def write_shards(dataset: CloudDataset, folder: Path, shard_bytes: int) -> Iterator[str]:
    """Write the clouds of a set, cropped and reduced as a training reads them, into shards.

    The index is written last, so a folder with one is complete.

    Args:
        dataset: of training clouds, made with a cache or without.
        folder: for the shards.
        shard_bytes: a shard is closed behind the cloud that makes it larger than this.

    Yields:
        The name of each cloud behind its writing.

    Raises:
        FileError: a cloud cannot be read, or the folder holds shards already.
        StorageError: the disk is full.
    """
    if (folder / INDEX).exists():
        raise FileError(folder / INDEX, "there are shards already; give another folder")
    rows: list[tuple[int, int, int, int]] = []  # shard, first byte, bytes, checksum
    names: list[str] = []
    while len(names) < len(dataset):
        shard = rows[-1][0] + 1 if rows else 0
        with (
            whole_file(folder / shard_name(shard)) as file,
            tarfile.open(fileobj=file, mode="w|", format=tarfile.PAX_FORMAT) as archive,
        ):
            while len(names) < len(dataset) and archive.offset < shard_bytes:
                name = dataset.name(len(names))
                rows.append((shard, *_added(archive, name, dataset.stored(len(names)))))
                names.append(name)
                yield name
    about = {"format": _FORMAT, "channels": list(dataset.clouds.channels), **recipe_of(dataset)}
    with whole_file(folder / INDEX, durable=True) as file:
        table = np.array(rows, dtype=np.int64).reshape(-1, 4)
        np.savez(file, about=np.array(json.dumps(about)), table=table, names=np.array(names))


def _added(archive: tarfile.TarFile, name: str, cloud: Cloud) -> tuple[int, int, int]:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays_of(cloud))  # type: ignore[arg-type]  # arrays by name
    content = buffer.getvalue()
    member = tarfile.TarInfo(f"{name.replace('.', '_')}.npz")
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))
    padded = -(-len(content) // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE
    return archive.offset - padded, len(content), zlib.crc32(content)


class ShardedClouds:
    """The clouds of shards, in the order in which they were written.

    Args:
        place: folder of the shards, or its address (``s3://``, ``gs://``, ``https://``, ...), which
            fsspec reads with the package that it names.
        recipe: what the clouds have to be made with; keys that are missing there are not compared.

    Raises:
        FileError: no index, a damaged one, or clouds that were made otherwise.
    """

    def __init__(self, place: str, recipe: Mapping[str, object]) -> None:
        self.place = place.rstrip("/")
        index = Path(self.place, INDEX)
        if is_remote(place):
            found = read_npz_bytes(_fetched(f"{self.place}/{INDEX}", None, None), index)
        else:
            found = read_npz(index)
        try:
            self._about: dict[str, Any] = json.loads(str(found["about"]))
            self._table, self._names = found["table"], found["names"]
            fits = self._table.shape == (len(self._names), 4) and self._about["format"] == _FORMAT
        except (KeyError, ValueError) as error:
            raise FileError(index, f"not an index of shards ({error})") from error
        if not fits:
            raise FileError(index, "not an index of shards of this version")
        for key, value in json.loads(json.dumps(dict(recipe))).items():
            if self._about.get(key, value) != value:
                raise FileError(
                    index,
                    f"its clouds were made with {key}={self._about[key]}, not {value}; write them "
                    "again (pcnn preprocess --shards), or train with the same settings",
                )

    @property
    def channels(self) -> tuple[str, ...]:
        """Names of the F features of a point."""
        return tuple(self._about["channels"])

    def __len__(self) -> int:
        """Number of clouds."""
        return len(self._names)

    def read(self, index: int) -> Cloud:
        """Return a cloud.

        Raises:
            FileError: the shard is gone, or damaged there.
        """
        shard, start, size, checksum = map(int, self._table[index])
        path = f"{self.place}/{shard_name(shard)}"
        if is_remote(self.place):
            content = _fetched(path, start, start + size)
        else:
            content = _read(path, start, size)
        if zlib.crc32(content) != checksum:
            raise FileError(path, f"{self.name(index)} is damaged: its checksum is another one")
        return cloud_of(read_npz_bytes(content, Path(path)), Path(path))

    def size(self, index: int) -> int:
        """Return the bytes of a cloud."""
        return int(self._table[index, 2])

    def sources(self, index: int) -> Sequence[Path]:
        """Return no files: a cloud has none of its own."""
        return ()

    def name(self, index: int) -> str:
        """Return what identifies a cloud within the set."""
        return str(self._names[index])

    def recipe(self) -> Mapping[str, object]:
        """Return the plain values that the clouds depend on."""
        return {key: value for key, value in self._about.items() if key != "format"}


def recipe_of(dataset: CloudDataset) -> dict[str, object]:
    """The plain values that the stored clouds of a set depend on."""
    reduced = dataset.geometry.recipe(dataset.voxel_size)
    return {**dataset.clouds.recipe(), **reduced, "crop": dataset.crop}


def shard_name(shard: int) -> str:
    """File of a shard."""
    return f"train-{shard:06d}.tar"


def is_remote(place: str) -> bool:
    """True for an address, which fsspec reads."""
    return "://" in place


@functools.lru_cache(maxsize=64)
def _open(path: str) -> BinaryIO:
    return open(path, "rb", buffering=0)


def _read(path: str, start: int, size: int) -> bytes:
    try:
        # at its place, as processes that were forked share the file and its position
        return os.pread(_open(path).fileno(), size, start)
    except OSError as error:
        raise FileError(path, str(error.strerror)) from error


def _fetched(path: str, start: int | None, end: int | None) -> bytes:
    try:
        content: bytes = _file_system(path.partition("://")[0], os.getpid()).cat_file(
            path, start=start, end=end
        )
    except (OSError, ImportError, ValueError) as error:
        raise FileError(path, f"cannot be read ({error})") from error
    return content


@functools.lru_cache(maxsize=8)
def _file_system(protocol: str, process: int) -> Any:
    import fsspec  # comes with Lightning

    # connections do not survive a fork
    return fsspec.filesystem(protocol, skip_instance_cache=True)
