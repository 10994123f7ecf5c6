"""Loaders of pairs: the published formats, resumed and shared exactly."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pcnn.datamodules import RegistrationDataModule
from pcnn.datamodules.batch_stream import BatchStream
from pcnn.datamodules.pairs import batches_of
from pcnn.datasets import OnPoints, OnVoxels, Placement
from pcnn.datasets.registration import (
    KITTISets,
    PairAugmentation,
    ThreeDMatchSets,
)
from pcnn.datasets.sampler import TrainingShare
from pcnn.metrics.registration import rotation_error
from pcnn.metrics.registration.pair_results import PairId
from tests.datasets.registration.training_sets import write_drive, write_predator
from tests.forking import require_fork


def indoor(root: Path, geometry: Placement | None = None, **options: Any) -> RegistrationDataModule:
    settings = {"augment": PairAugmentation(), "feature_noise": 0.01, "num_workers": 0}
    return RegistrationDataModule(
        ThreeDMatchSets(root=str(root)),
        voxel_size=0.1,
        geometry=geometry,
        **(settings | options),
    )


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    write_predator(tmp_path / "set", ("a", "b", "c"))
    return tmp_path / "set"


def pictures(stream: Any, number: int) -> list[tuple]:
    """Identities of the batches of a loader: names, rows and bits."""
    found = []
    for batch in stream:
        found.append((batch.names, batch.source_places.shape, float(batch.transforms.sum())))
        if len(found) == number:
            return found
    return found


@pytest.mark.parametrize("geometry", [OnVoxels(), OnPoints()], ids=["voxel", "point"])
def test_loaders_of_both_geometries(archive: Path, geometry: Placement) -> None:
    data = indoor(archive, geometry, batch_size=2)
    with pytest.raises(RuntimeError, match="known after"):
        _ = data.source_kind
    data.prepare_data()
    data.setup("fit")
    assert (data.source_kind, data.benchmark, data.in_channels) == ("real", "threedmatch", 1)
    train, val = list(data.train_dataloader()), list(data.val_dataloader())
    assert [batch.batch_size for batch in train] == [2, 2, 2]
    assert len({name for batch in train for name in batch.names}) == 6
    assert [batch.names for batch in val] == [
        (PairId("c", 0, 1),),
        (PairId("c", 1, 2),),
        (PairId("c", 2, 3),),
    ]
    # validation is as the files have it
    pair = data.pairs("val").pairs[0]
    torch.testing.assert_close(val[0].transforms[0], pair.transform)
    turned, again = (
        next(iter(indoor(archive, geometry, turn_val=True).val_dataloader())) for _ in "ab"
    )
    assert rotation_error(turned.transforms[0], pair.transform) > 1
    assert torch.equal(turned.transforms, again.transforms)
    assert float((val[0].inputs[0].features - 1).abs().max()) == 0.0
    assert float((train[0].inputs[0].features - 1).abs().max()) > 0.0


def test_an_epoch_does_not_depend_on_the_workers(archive: Path) -> None:
    require_fork()
    alone, helped = (
        pictures(indoor(archive, num_workers=n, batch_size=2).train_dataloader(), 3) for n in (0, 2)
    )
    assert alone == helped
    assert alone != pictures(indoor(archive, seed=1, batch_size=2).train_dataloader(), 3)


def test_rotations_grow_over_the_steps_also_after_a_restart(archive: Path) -> None:
    growth = PairAugmentation(uniform_rotations=True, rotation_growth=((0.0, 1.0), (1.0, 180.0)))
    trainer: Any = SimpleNamespace(max_steps=4, max_epochs=-1, accumulate_grad_batches=2)

    def data() -> RegistrationDataModule:
        module = indoor(archive, batch_size=2, augment=growth)
        module.train_dataloader()  # what another training had leaves no trace
        dataset, sampler = module.dataset("train"), module.train_sampler()
        assert dataset is not None
        dataset.share = TrainingShare(sampler, batches_of(trainer, sampler))
        return module

    def moved(module: RegistrationDataModule, position: int) -> list[float]:
        keys = next(module.train_sampler().batches(position))
        dataset = module.dataset("train")
        assert dataset is not None
        assert dataset.share is not None
        shares = {dataset.share(key) for key in keys}
        assert shares == {min(position / 8, 1.0)}, "8 batches of 4 steps, one share a step"
        return [float(dataset[key].transform.sum()) for key in keys]

    through = data()
    first = [moved(through, position) for position in range(10)]
    assert first[7] == moved(data(), 7), "begun at the eighth batch"
    assert first[:3] == [moved(through, position) for position in range(3)]
    sampler = through.train_sampler()
    trainer.max_steps, trainer.max_epochs = -1, 5
    assert batches_of(trainer, sampler) == 15
    trainer.max_epochs = -1
    with pytest.raises(ValueError, match=r"set trainer\.max_steps"):
        batches_of(trainer, sampler)


def test_limits(archive: Path) -> None:
    data = indoor(archive, limit_train=4, limit_val=2, max_points=50, batch_size=9)
    assert isinstance(data.train_dataloader(), BatchStream)
    (batch,) = data.train_dataloader()
    assert batch.batch_size == 4  # all there are
    assert batch.source_offsets.tolist() == [0, 50, 100, 150, 200]
    (first, _) = data.val_dataloader()
    (again, _) = indoor(archive, limit_val=2, max_points=50, seed=7).val_dataloader()
    assert torch.equal(first.source_places, again.source_places)  # runs of all seeds


def test_drives(tmp_path: Path) -> None:
    for sequence in (0, 6, 8):
        write_drive(tmp_path, sequence, 5)
    sets = KITTISets(
        root=str(tmp_path),
        ground_truth="odometry",
        train_sequences=[0],
        val_sequences=[6],
        sequences=[8],
        distances=[2.0, 7.0],
    )
    data = RegistrationDataModule(sets, voxel_size=0.3, num_workers=0, max_points=300)
    data.setup()
    assert data.benchmark == "kitti"
    assert len(data.train_dataloader()) == 7
    (test,) = data.test_dataloader()  # the published rule, and all points
    assert test.names == (PairId("08", 3, 0),)
    assert len(test.source_places) > 300
    (first, *_) = data.val_dataloader()
    assert first.names == (PairId("06", 1, 0),)
    assert len(first.source_places) == 300


def test_a_list_without_pairs_is_no_validation(
    archive: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = indoor(archive)
    data.pairs("val").pairs = []
    assert data.val_dataloader() == []
    assert "3DMatch val pairs holds no pairs: there is no val" in caplog.text
    data.pairs("train").pairs = []
    with pytest.raises(ValueError, match="3DMatch train pairs holds no pairs"):
        data.setup("fit")


def test_a_broken_cloud_is_named(archive: Path) -> None:
    path = archive / "indoor" / "train" / "c" / "cloud_bin_1.pth"
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(ValueError, match=r"c/cloud_bin_1\.pth: "):
        list(indoor(archive).val_dataloader())
