from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import lightning.pytorch as pl
import numpy as np
import pytest
import torch

from pcnn.datamodules import CloudDataModule
from pcnn.datasets.batches import CloudBatch
from pcnn.datasets.transforms.augment import Augmentation
from tests.datamodules.modules import kitti_module, plain_trainer
from tests.datasets.clouds import write_scan


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for frame in range(5):
        write_scan(tmp_path / "kitti", 0, frame, 300 + frame)
    for frame in range(3):
        write_scan(tmp_path / "kitti", 8, frame, 200 + frame)
    return tmp_path / "kitti"


def module(root: Path, **options: object) -> CloudDataModule:
    defaults: dict[str, object] = {
        "root": str(root),
        "data_dir": str(root.parent / "data"),
        "train_sequences": [0],
        "voxel_size": 1.0,
        "crop": 15.0,
        "augment": Augmentation(drop=0.1),
        "num_workers": 0,
        "seed": 2,
    }
    return kitti_module(**{**defaults, **options})


def test_what_it_is(root: Path):
    data = module(root)
    assert (data.num_classes, data.in_channels) == (19, 4)
    assert data.class_names[8] == "road"
    assert data.colors[8] == (255, 0, 255)
    data.prepare_data()
    assert data.source_kind == "real"
    assert data.data_root == root
    assert data.sets.label_map.decode(np.array([8, 255])).tolist() == [40, 0]
    path = data.sets.prediction_path("08/000123")
    assert path == Path("sequences/08/predictions/000123.label")


def same(one: CloudBatch, other: CloudBatch) -> bool:
    return (
        one.names == other.names
        and torch.equal(one.tensor.features, other.tensor.features)
        and torch.equal(one.tensor.geometry.keys, other.tensor.geometry.keys)
        and torch.equal(one.labels, other.labels)
        and one.n_points == other.n_points > 0
    )


def epochs(data: CloudDataModule, n: int) -> Iterator[CloudBatch]:
    data.setup("fit")
    stream = data.train_dataloader()
    for _ in range(n):
        yield from stream


def test_batches_do_not_depend_on_workers_or_threads(root: Path):
    options = {"batch_size": 2}
    here = list(epochs(module(root, num_workers=0, **options), 3))
    torch.set_num_threads(2)
    workers = list(epochs(module(root, num_workers=2, **options), 3))
    assert len(here) == 6
    assert all(same(one, other) for one, other in zip(here, workers, strict=True))
    assert not same(here[0], here[2])


def test_training_uses_the_cache_and_evaluation_every_point(root: Path):
    data = module(root)
    data.setup("fit")
    batch = next(iter(data.train_dataloader()))
    train = data.dataset("train")
    sample = train[next(i for i in range(len(train)) if train.name(i) == batch.names[0])]
    assert (len(batch.points), batch.point_labels, batch.point_index) == (0, None, None)
    assert batch.n_points == sample.cloud.n_points > 0
    assert torch.equal(batch.labels, sample.labels)
    with pytest.raises(ValueError, match="take it from an evaluation loader"):
        _ = batch.inverse
    assert list((root.parent / "data" / "cache").rglob("*.npz"))
    for b, batch in enumerate(data.val_dataloader()):
        assert batch.names == (f"08/{b:06d}",)
        whole = data.dataset("val").read(b)
        inside = whole.points[:, 0] ** 2 + whole.points[:, 1] ** 2 <= 15.0**2
        assert batch.n_points == int(inside.sum())
        assert batch.n_points_total == (200 + b,)
        full = batch.full_scan(0, batch.point_labels, fill=-1)
        assert torch.equal(full[inside], whole.labels[inside])
    assert b == 2


def test_splits_and_limits(root: Path):
    data = module(root)
    assert data.dataset("test") is data.dataset("val")
    assert module(root, test_sequences=[0]).dataset("test").name(0) == "00/000000"
    data = module(root, val_sequences=[], test_sequences=[])
    data.setup("fit")
    assert data.val_dataloader() == []
    with pytest.raises(ValueError, match="no training scans"):
        module(root, train_sequences=[]).train_dataloader()
    data = module(root, limit_train=3, limit_val=1)
    assert [len(data.dataset(split)) for split in ("train", "val", "test")] == [3, 1, 1]


def test_a_set_smaller_than_a_batch_is_trained_on_and_said(
    root: Path, caplog: pytest.LogCaptureFixture
):
    net = fit(module(root, batch_size=8), root, max_epochs=1)
    assert sorted(net.keys) == [f"00/{i:06d}" for i in range(5)]
    assert "5 scans to train on and 1 rank: batches hold 5 instead of 8" in caplog.text


def test_sequences_that_are_there_are_trained_on_when_told_so(
    root: Path, caplog: pytest.LogCaptureFixture
):
    few = {"allow_missing": True, "val_sequences": [7], "test_sequences": [7]}
    data = module(root, train_sequences=[0, 9], **few)
    data.setup()
    names = [name for batch in data.train_dataloader() for name in batch.names]
    assert sorted(names) == [f"00/{i:06d}" for i in range(5)]
    assert (data.val_dataloader(), data.test_dataloader()) == ([], [])
    assert "no sequences 9; train uses the others" in caplog.text
    assert "none of the sequences of the validation split is there (7); last.ckpt" in caplog.text
    with pytest.raises(FileNotFoundError, match=r"to train on \(9\); choose dataset\.train_seq"):
        module(root, train_sequences=[9], **few).setup("fit")
    with pytest.raises(FileNotFoundError, match=r"lacks 09/velodyne\. dataset\.allow_missing=true"):
        module(root, train_sequences=[0, 9]).setup("fit")


class Net(pl.LightningModule):
    """Predicts a class a voxel from the voxel's own inputs; remembers what it saw."""

    def __init__(self) -> None:
        super().__init__()
        self.head = torch.nn.Linear(4, 19)
        self.keys: list[str] = []
        self.scored = 0

    def training_step(self, batch: CloudBatch, batch_idx: int) -> torch.Tensor:
        self.keys += batch.names
        logits = self.head(batch.tensor.features)
        return torch.nn.functional.cross_entropy(logits, batch.labels, ignore_index=255)

    def validation_step(self, batch: CloudBatch, batch_idx: int) -> None:
        assert batch.tensor.features.dtype == self.dtype
        self.scored += len(self.head(batch.tensor.features)[batch.inverse])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


def fit(data: CloudDataModule, folder: Path, **options: object) -> Net:
    net = Net()
    trainer = plain_trainer(folder, num_sanity_val_steps=0, **options)
    trainer.fit(net, data)
    return net


@pytest.mark.parametrize(("workers", "precision"), [(0, "64-true"), (2, "32-true")])
def test_lightning_trains_and_validates(root: Path, workers: int, precision: str):
    net = fit(module(root, num_workers=workers), root, max_epochs=2, precision=precision)
    assert len(net.keys) == 10
    assert sorted(net.keys[:5]) == sorted(net.keys[5:]) == [f"00/{i:06d}" for i in range(5)]
    assert net.scored == 2 * sum(b.n_points for b in module(root).val_dataloader())


@pytest.mark.filterwarnings("ignore:You requested to overfit")
def test_overfit_repeats_the_same_scans(root: Path):
    net = fit(module(root), root, max_epochs=3, overfit_batches=2)
    assert net.keys == ["00/000000", "00/000001"] * 3
    net = fit(module(root), root, max_epochs=2, overfit_batches=0.4)
    assert net.keys == ["00/000000", "00/000001"] * 2


def test_resuming_with_other_data_is_said(root: Path, caplog: pytest.LogCaptureFixture):
    state = module(root).train_dataloader().state_dict()
    module(root).train_dataloader().load_state_dict(state)
    assert not caplog.messages
    module(root, limit_train=4, seed=3).train_dataloader().load_state_dict(state)
    assert "samples 5 -> 4, seed 2 -> 3" in caplog.messages[0]


def test_without_a_trainer_the_stream_goes_on(root: Path):
    stream = module(root).train_dataloader()
    first = [batch.names for batch in islice(stream, 3)]
    rest = [batch.names for batch in stream]
    keys = [batch.names for batch in epochs(module(root), 2)]
    assert first + rest == keys[:8]
