"""What every data module promises: one stream, one exact pass, and damaged samples by name."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import pytest
import torch

from pcnn.datamodules import RegistrationDataModule
from pcnn.datamodules.batch_stream import SampleError
from pcnn.datasets import OnPoints, OnVoxels
from pcnn.datasets.registration import PairAugmentation, ThreeDMatchSets
from pcnn.datasets.registration.sensors import Sparser
from pcnn.datasets.transforms.augment import Augmentation
from pcnn.errors import UserError
from pcnn.metrics.registration import rotation_error
from pcnn.metrics.registration.pair_results import PairId
from tests.datamodules.modules import folder_module, kitti_module
from tests.datasets.clouds import scan, write_scan
from tests.datasets.registration.training_sets import write_predator
from tests.forking import require_fork

TURNS = PairAugmentation(sensors=(Sparser((300, 900)),))


def kitti(root: Path, **options: Any) -> Any:
    """Five training scans, three to validate on."""
    for sequence, scans in ((0, 5), (8, 3)):
        for frame in range(0 if (root / "kitti").exists() and sequence == 0 else scans):
            write_scan(root / "kitti", sequence, frame, 200 + frame)
    given = {"data_dir": str(root / "data"), "train_sequences": [0], "voxel_size": 1.0}
    given |= {"crop": 15.0, "augment": Augmentation(drop=0.1), "num_workers": 0, "seed": 2}
    return kitti_module(str(root / "kitti"), **(given | options))


def folder(root: Path, **options: Any) -> Any:
    """Five clouds of two classes and three channels."""
    (root / "folder").mkdir(exist_ok=True)
    for i in range(0 if any((root / "folder").iterdir()) else 5):
        values = np.concatenate([scan(50, i), scan(50, i)[:, :2]], axis=1)
        np.save(root / "folder" / f"{i}.npy", values)
        np.save(root / "folder" / f"{i}_label.npy", np.arange(50) % 2)
    given = {"class_names": ["wood", "leaf"], "num_workers": 0, "augment": Augmentation()}
    return folder_module(str(root / "folder"), 0.5, **(given | options))


def pairs(root: Path, **options: Any) -> RegistrationDataModule:
    """Six training pairs of two scenes, three of another to validate on."""
    if not (root / "rooms").exists():
        write_predator(root / "rooms", ("a", "b", "c"))
    given = {"augment": TURNS, "feature_noise": 0.01, "num_workers": 0}
    sets = ThreeDMatchSets(root=str(root / "rooms"))
    return RegistrationDataModule(sets, voxel_size=0.1, **(given | options))


Make = Callable[..., Any]
MODULES: dict[str, tuple[Make, dict[str, Any]]] = {
    "kitti on voxels": (kitti, {}),
    "kitti on points": (kitti, {"geometry": OnPoints()}),
    "folder": (folder, {}),
    "pairs on voxels": (pairs, {}),
}


def bits(batch: Any) -> tuple[Any, ...]:
    """What tells batches apart."""
    inputs = batch.inputs if hasattr(batch, "inputs") else (batch.tensor,)
    beside = [t.double().sum().item() for t in batch.tensors()]
    return batch.names, *(float(x.features.double().sum()) for x in inputs), *beside


def stream(data: Any, number: int) -> list[tuple[Any, ...]]:
    data.setup("fit")
    loader = data.train_dataloader()
    epochs: Iterator[Any] = (batch for _ in iter(int, 1) for batch in loader)
    found = [bits(batch) for batch in islice(epochs, number)]
    loader._iterator = None  # ends the worker processes
    return found


@pytest.mark.parametrize("name", MODULES)
def test_training_is_one_stream_whatever_the_workers_and_interruptions(
    name: str, tmp_path: Path
) -> None:
    require_fork()
    make, options = MODULES[name]
    options = {"batch_size": 2, **options}
    whole = stream(make(tmp_path, **options), 6)
    assert len(set(whole)) == 6
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    assert stream(make(tmp_path, num_workers=2, **options), 6) == whole
    torch.set_num_threads(threads)
    other = stream(make(tmp_path, **options | {"seed": 7}), 6)
    assert other != whole
    again = make(tmp_path, **options)
    for position in (4, 1, 5):  # the batches that a run would have seen next
        again.trainer = None
        loader = again.train_dataloader()
        loader.position = lambda at=position: at
        assert bits(next(iter(loader))) == whole[position]


@pytest.mark.parametrize("name", MODULES)
def test_an_evaluation_reads_every_sample_once_and_as_its_files_have_it(
    name: str, tmp_path: Path
) -> None:
    make, options = MODULES[name]
    data = make(tmp_path, **options)
    data.prepare_data()
    data.setup("fit")
    assert data.source_kind == "real"
    assert data.data_root.parent == tmp_path
    names = [one for batch in data.val_dataloader() for one in batch.names]
    assert len(names) == len(set(names)) == len(data.dataset("val"))
    again = make(tmp_path, **options | {"seed": 7, "val_batch_size": 2})
    assert [one for batch in again.val_dataloader() for one in batch.names] == names
    first = bits(next(iter(data.val_dataloader())))
    assert first == bits(next(iter(make(tmp_path, **options | {"seed": 9}).val_dataloader())))


# -- clouds


def test_splits_of_a_folder(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = folder(tmp_path)
    data.setup("test")
    assert data.tests_on_validation
    caplog.clear()
    data = folder(tmp_path, test_fraction=0.4)
    data.setup()
    loaders = data.train_dataloader(), data.val_dataloader(), data.test_dataloader()
    read = [[name for batch in loader for name in batch.names] for loader in loaders]
    assert [len(names) for names in read] == [2, 1, 2]
    assert sorted(name for names in read for name in names) == ["0", "1", "2", "3", "4"]
    assert (data.tests_on_validation, caplog.text) == (False, "")
    for i in range(1, 5):
        (tmp_path / "folder" / f"{i}_label.npy").unlink()
    data = folder(tmp_path)
    data.setup("fit")  # one cloud trains, and nothing validates
    assert [name for batch in data.train_dataloader() for name in batch.names] == ["0"]
    assert data.val_dataloader() == []
    assert caplog.text.count("have no labels and are left out") == 1
    with pytest.raises(UserError, match="test split has no clouds"):
        folder(tmp_path).setup("test")


# -- pairs


def test_pairs_of_both_geometries(tmp_path: Path) -> None:
    for geometry in (OnVoxels(), OnPoints()):
        data = pairs(tmp_path, geometry=geometry, batch_size=2)
        train, val = list(data.train_dataloader()), list(data.val_dataloader())
        assert len({name for batch in train for name in batch.names}) == 6
        assert [batch.names for batch in val] == [(PairId("c", n, n + 1),) for n in range(3)]
        pair = data.pairs("val").pairs[0]
        torch.testing.assert_close(val[0].transforms[0], pair.transform)
        assert float((val[0].inputs[0].features - 1).abs().max()) == 0.0
        assert float((train[0].inputs[0].features - 1).abs().max()) > 0.0
        turned = pairs(tmp_path, geometry=geometry, turn_val=True).val_dataloader()
        assert rotation_error(next(iter(turned)).transforms[0], pair.transform) > 1
    data = pairs(tmp_path, limit_train=4, limit_val=2, max_points=50, batch_size=9)
    (batch,) = data.train_dataloader()
    assert batch.source_offsets.tolist() == [0, 50, 100, 150, 200]  # all there are
    assert len(list(data.val_dataloader())) == 2


def test_pairs_that_are_refused(tmp_path: Path) -> None:
    data = pairs(tmp_path)
    data.pairs("val").pairs = []
    assert data.val_dataloader() == []
    data.pairs("train").pairs = []
    with pytest.raises(ValueError, match="3DMatch train pairs holds no pairs"):
        data.setup("fit")
    path = tmp_path / "rooms" / "indoor" / "train" / "c" / "cloud_bin_1.pth"
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(ValueError, match=r"c/cloud_bin_1\.pth: "):
        list(pairs(tmp_path).val_dataloader())


# -- damaged samples


@pytest.mark.parametrize("workers", [0, 1])
def test_a_damaged_scan_is_named_or_replaced_by_the_next(
    tmp_path: Path,
    workers: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    options = {"cache": False, "crop": None, "limit_train": 4, "num_workers": workers}
    kitti(tmp_path)
    torn = tmp_path / "kitti/sequences/00/velodyne/000002.bin"
    (tmp_path / "kitti/sequences/00/velodyne/000004.bin").unlink()
    (tmp_path / "kitti/sequences/00/labels/000004.label").unlink()
    os.truncate(torn, 77)
    with pytest.raises(SampleError) as raised:
        list(kitti(tmp_path, **options).train_dataloader())
    lines = str(raised.value).splitlines()
    assert len(lines) == 2
    assert str(torn) in lines[0]
    assert "dataset.on_error=skip" in lines[1]
    loader = kitti(tmp_path, on_error="skip", batch_size=2, **options).train_dataloader()
    for _ in range(2):
        epoch = sorted(name for batch in loader for name in batch.names)
        assert epoch == ["00/000000", "00/000001", "00/000003", "00/000003"]
    if not workers:  # a worker process says it on the terminal
        (said,) = (message for message in caplog.messages if "left out" in message)  # once
        assert str(torn) in said
    data = kitti(tmp_path, on_error="skip", **options)
    data.setup("fit")
    os.truncate(tmp_path / "kitti/sequences/08/labels/000001.label", 0)
    with pytest.raises(SampleError, match=r"000001\.label"):  # an evaluation counts every scan
        list(data.val_dataloader())
    for path in torn.parent.glob("*.bin"):
        path.unlink()
    with caplog.at_level(logging.CRITICAL), pytest.raises(SampleError, match="in a row"):
        list(data.train_dataloader())  # a disk that is gone is no bad file


@pytest.mark.filterwarnings("ignore:You requested to overfit")
def test_other_samples_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = kitti(tmp_path)
    data.trainer = pl.Trainer(accelerator="cpu", overfit_batches=2, logger=False)
    with pytest.raises(UserError, match="limit_train"):
        data.train_dataloader()
    state = kitti(tmp_path).train_dataloader().state_dict()
    kitti(tmp_path, limit_train=4, seed=3).train_dataloader().load_state_dict(state)
    assert "samples 5 -> 4, seed 2 -> 3" in caplog.text
