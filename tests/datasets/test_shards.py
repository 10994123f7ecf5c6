"""Clouds in shards are the clouds of files: the same batches, found at any place."""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pcnn.datasets.shards import INDEX, ShardedClouds, write_shards
from pcnn.datasets.transforms.augment import Augmentation
from pcnn.errors import FileError
from tests.cli.invoking import invoke
from tests.datamodules.modules import kitti_module
from tests.datasets.clouds import write_scan


@pytest.fixture
def module(tmp_path: Path) -> Callable[..., Any]:
    for frame in range(5):
        write_scan(tmp_path / "kitti", 0, frame, 200 + 30 * frame)
    write_scan(tmp_path / "kitti", 8, 0, 100)

    def make(**more: Any) -> Any:
        return kitti_module(
            root=str(tmp_path / "kitti"),
            data_dir=str(tmp_path / "data"),
            train_sequences=[0],
            voxel_size=0.5,
            crop=15.0,
            batch_size=2,
            num_workers=0,
            augment=Augmentation(),
            **more,
        )

    return make


def batches(made: Any, epochs: int = 2) -> list[Any]:
    stream = made.train_dataloader()
    return [batch for _ in range(epochs) for batch in stream]


def test_batches_are_those_of_the_cache(module: Callable[..., Any], tmp_path: Path) -> None:
    data = module(cache=True)
    dataset = data.dataset("train")
    # two clouds of some kilobytes fill a shard
    assert len(list(write_shards(dataset, tmp_path / "shards", 6000))) == 5
    shards = sorted((tmp_path / "shards").glob("*.tar"))
    assert len(shards) > 1
    with tarfile.open(shards[0]) as archive:  # any tool reads it
        assert archive.getnames()[0] == "00/000000.npz"
        points = np.load(archive.extractfile("00/000000.npz"))["points"]  # type: ignore[arg-type]
    assert np.array_equal(points, dataset.stored(0).points.numpy())
    for place in (str(tmp_path / "shards"), (tmp_path / "shards").as_uri()):
        sharded = module(shards=place)
        for one, other in zip(batches(data), batches(sharded), strict=True):
            assert one.names == other.names
            assert torch.equal(one.tensor.features, other.tensor.features)
            assert torch.equal(one.tensor.geometry.keys, other.tensor.geometry.keys)
            assert torch.equal(one.labels, other.labels)
        assert sharded.channels == data.channels
        made = sharded.dataset("train")
        assert [made.name(i) for i in range(5)] == [dataset.name(i) for i in range(5)]
        assert made.size(4) > made.size(0) > 0
    with pytest.raises(FileError, match="there are shards already"):
        next(write_shards(dataset, tmp_path / "shards", 6000))


def test_what_does_not_fit_or_is_damaged_is_told(
    module: Callable[..., Any], tmp_path: Path
) -> None:
    folder = tmp_path / "shards"
    list(write_shards(module(cache=True).dataset("train"), folder, 1 << 20))
    with pytest.raises(FileError, match=r"crop=15\.0, not None"):
        ShardedClouds(str(folder), {"crop": None})
    clouds = ShardedClouds(str(folder), {"crop": 15.0})
    (path,) = folder.glob("*.tar")
    content = bytearray(path.read_bytes())
    content[int(clouds._table[2, 1]) + 700] ^= 1
    path.write_bytes(content)
    clouds.read(1)
    with pytest.raises(FileError, match=r"train-000000\.tar: 00/000002 is damaged"):
        clouds.read(2)
    path.rename(folder / "away")
    (folder / INDEX).write_bytes(b"PK")
    with pytest.raises(FileError, match=INDEX):
        ShardedClouds(str(folder), {})
    with pytest.raises(FileError, match=INDEX):
        ShardedClouds((tmp_path / "nowhere").as_uri(), {})


def test_the_command_writes_what_a_training_takes(
    module: Callable[..., Any], tmp_path: Path
) -> None:
    data = module(cache=True)
    words = ("kitti", tmp_path / "kitti", "--data-dir", tmp_path / "data", "--sequence", 0)
    words += ("--voxel-size", 0.5, "--crop", 15, "--workers", 0, "--no-progress")
    said = invoke("preprocess", *words, "--shards", tmp_path / "out")
    assert "5 clouds in 1 shard: dataset.shards=" in said
    found = module(shards=str(tmp_path / "out"))
    assert [b.names for b in batches(found)] == [b.names for b in batches(data)]
