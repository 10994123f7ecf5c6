"""Keys of a data set reach its data module by their names, and nodes of earlier versions load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from pcnn.datamodules import ClassificationDataModule, CloudDataModule
from pcnn.datasets import FolderSets, S3DISSets, S3DISTypeSets, SemanticKITTISets
from pcnn.experiment import nodes
from pcnn.experiment.check import checked
from pcnn.experiment.errors import ConfigError
from tests.experiment.sweep import composed


def node_of(cfg: DictConfig) -> dict[str, Any]:
    return nodes.plain(cfg.dataset.tasks[cfg.task.name])


def test_every_key_reaches_the_parameter_of_its_name() -> None:
    cfg = checked(composed("dataset.crop=7", "dataset.allow_missing=true", "seed=5"))
    node = node_of(cfg)
    assert (node["crop"], node["seed"], node["geometry"]["name"]) == (7, 5, "voxel")
    assert node["augment"]["sector"] == 160.0
    assert (node["sets"]["allow_missing"], node["sets"]["test_sequences"]) == (True, [8])
    assert "point_max" not in node  # no key of this set


def test_a_parameter_that_is_called_otherwise_is_written_out() -> None:
    node = node_of(checked(composed("model=resunet", "dataset=kitti", "dataset.pair_voxel_size=1")))
    assert (node["voxel_size"], node["limit_val"]) == (1, 400)
    assert node["augment"]["scale"] == [0.8, 1.2]
    assert node["sets"]["simulate"]["frame_stride"] == 4


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("dataset.voxel_size=-1", "dataset.voxel_size=-1 is not valid"),
        ("+dataset.simulate.trains=1", "dataset.simulate.trains does not exist"),
        ("+dataset.vocel_size=1", "dataset=kitti has no key vocel_size"),
    ],
)
def test_a_message_names_the_key_of_the_data_set(override: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        checked(composed(override))


def test_settings_of_earlier_versions() -> None:
    cfg = composed("model=resunet", "task=registration", "dataset=threedmatch")
    task = {**cfg.task, "copies": 1}  # of a run that described clouds as they lie
    checked(OmegaConf.create({**cfg, "task": task}))
    with pytest.raises(ConfigError, match=r"task\.copies does not exist"):
        checked(OmegaConf.create({**cfg, "task": {**task, "copies": 24}}))


OLD = {
    "KITTISegmentation": (CloudDataModule, SemanticKITTISets, {"crop": 9.0, "labels": "official"}),
    "S3DISSegmentation": (CloudDataModule, S3DISSets, {"point_max": 50, "test_areas": [2]}),
    "S3DISClassification": (ClassificationDataModule, S3DISTypeSets, {"val_areas": []}),
    "FolderSegmentation": (CloudDataModule, FolderSets, {"class_names": ["a", "b"]}),
}


@pytest.mark.parametrize("name", OLD)
def test_nodes_of_earlier_versions(name: str, tmp_path: Path) -> None:
    module, sets, others = OLD[name]
    task = "classification" if "Classification" in name else "segmentation"
    old = {
        "_target_": f"pcnn.datamodules.{name}",
        "root": str(tmp_path),
        "voxel_size": 0.25,
        "batch_size": 3,
        "data_dir": str(tmp_path),
        "augment": {"_target_": "pcnn.datasets.augment.Augmentation", "flip": False},
        **others,
    }
    dataset = {"name": "any", "tasks": {task: old}, "voxel_size": 0.25, "unknown": 1}
    model = "resnet18" if task == "classification" else "minkunet"
    cfg = composed(f"model={model}", f"task={task}")
    stored = OmegaConf.create({**cfg, "dataset": dataset, "data": {"source": "real"}})
    data = nodes.make(node_of(checked(stored)), "dataset")
    assert type(data) is module
    assert type(data.sets) is sets
    assert (data.voxel_size, data.batch_size, data.augment.flip) == (0.25, 3, False)
    assert data.sets.root == str(tmp_path)
    for key, value in others.items():
        assert getattr(data, key, None) == value or getattr(data.sets, key) == value
