from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pcnn.datamodules import CloudDataModule
from pcnn.datasets.transforms.augment import Augmentation
from pcnn.datasets.transforms.features import Chromatic
from pcnn.errors import UserError
from tests.datamodules.modules import folder_module
from tests.datasets.clouds import scan, write_vertices


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for i in range(5):
        np.save(tmp_path / f"{i}.npy", np.concatenate([scan(50, i), scan(50, i)[:, :2]], axis=1))
        np.save(tmp_path / f"{i}_label.npy", np.arange(50) % 2)
    return tmp_path


def module(root: Path, **options: object) -> CloudDataModule:
    return folder_module(str(root), 0.5, class_names=["wood", "leaf"], num_workers=0, **options)


def test_loads_both_splits(root: Path):
    data = module(root)
    data.prepare_data()
    data.setup("fit")
    assert (data.num_classes, data.in_channels, data.source_kind) == (2, 6, "real")
    train = [name for batch in data.train_dataloader() for name in batch.names]
    val = [name for batch in data.val_dataloader() for name in batch.names]
    assert len(train) == 4
    assert sorted(train + val) == ["0", "1", "2", "3", "4"]
    assert [name for batch in data.test_dataloader() for name in batch.names] == val
    assert next(iter(data.val_dataloader())).tensor.features.shape[1] == 6


def test_batches_of_a_module_that_joins_its_own_way_are_those_of_both_splits(root: Path) -> None:
    data = module(root)
    assert data.collate_training().rows_alone

    class Named(type(data)):  # type: ignore[misc]
        def collate(self) -> Any:
            return lambda samples: [sample.cloud.name for sample in samples]

    data.__class__ = Named
    data.setup("fit")
    batches = [*data.train_dataloader(), *data.val_dataloader()]
    assert sorted(itertools.chain.from_iterable(batches)) == list("01234")


def test_colours_that_are_not_the_first_channels_are_not_augmented(tmp_path: Path) -> None:
    kinds = [(name, "f4") for name in "xyz"] + [("intensity", "f4")]
    kinds += [(name, "u1") for name in ("red", "green", "blue")]
    for i in range(3):
        write_vertices(tmp_path / f"{i}.ply", np.ones(20, kinds))
        np.save(tmp_path / f"{i}_label.npy", np.arange(20) % 2)
    augment = Augmentation(chromatic=Chromatic())
    with pytest.raises(UserError, match=r"intensity, red, green\.\npossible: dataset\.channels"):
        module(tmp_path, augment=augment).build("train")
    assert module(tmp_path, augment=augment).build("val") is not None
    first = ("red", "green", "blue", "intensity")
    assert module(tmp_path, augment=augment, channels=first).build("train") is not None


def test_one_cloud_trains_and_nothing_validates(root: Path, caplog: pytest.LogCaptureFixture):
    for i in range(1, 5):
        (root / f"{i}_label.npy").unlink()
    data = module(root)
    data.setup("fit")
    assert [name for batch in data.train_dataloader() for name in batch.names] == ["0"]
    assert data.val_dataloader() == []
    assert "no clouds are left for the validation split; last.ckpt is the result" in caplog.text
    assert caplog.text.count("have no labels and are left out") == 1


def test_a_test_split_of_its_own_or_the_word_that_there_is_none(
    root: Path, caplog: pytest.LogCaptureFixture
):
    data = module(root)
    data.setup("test")
    assert data.tests_on_validation
    assert "has no test split of its own" in caplog.text
    caplog.clear()
    data = module(root, test_fraction=0.4)
    data.setup()
    loaders = data.train_dataloader(), data.val_dataloader(), data.test_dataloader()
    read = [[name for batch in loader for name in batch.names] for loader in loaders]
    assert [len(names) for names in read] == [2, 1, 2]
    assert sorted(name for names in read for name in names) == ["0", "1", "2", "3", "4"]
    assert not data.tests_on_validation
    assert not caplog.text


def test_evaluation_needs_no_training_clouds(root: Path):
    (root / "val").mkdir()
    for path in list(root.glob("*.npy")):
        path.rename(root / "val" / path.name)
    data = module(root)
    data.setup("test")
    assert data.in_channels == 6
    assert len(list(data.test_dataloader())) == 5
    with pytest.raises(FileNotFoundError, match="for train"):
        data.setup("fit")


def test_what_the_sets_say(root: Path):
    data = module(root)
    assert len(set(data.colors)) == 2
    assert module(root, colors=[[1, 2, 3], [4, 5, 6]]).colors == ((1, 2, 3), (4, 5, 6))
    with pytest.raises(ValueError, match="colors: 1 for 2 classes"):
        module(root, colors=[[1, 2, 3]])
    assert data.sets.label_map.decode(np.array([1, 0, 255])).tolist() == [1, 0, 255]
    assert data.sets.prediction_path("a/b") == Path("a/b.label")
    (root / "SIMULATED.json").write_text("{}")
    assert module(root).source_kind == "simulated"


def test_an_evaluation_without_clouds_names_folder_and_split(tmp_path: Path) -> None:
    np.save(tmp_path / "only.npy", np.ones((5, 3), np.float32))
    np.save(tmp_path / "only_label.npy", np.zeros(5, np.int64))
    data = module(tmp_path)
    with pytest.raises(UserError, match=f"{tmp_path}: the test split has no clouds to evaluate"):
        data.setup("test")
    trains = module(tmp_path)
    trains.setup("fit")  # one cloud trains; its run has no figures
    trains.setup("test")
    assert trains.test_dataloader() == []
