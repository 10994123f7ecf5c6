"""`pcnn bench data` measures a real training, and nothing that is wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from pcnn.bench.data.figures import check_loading, check_sample, linked_set
from pcnn.bench.rows import read_rows
from pcnn.bench.verify import CheckFailed
from pcnn.cli.commands import app
from pcnn.datamodules import CloudDataModule
from pcnn.datasets import OnPoints, OnVoxels, Placement
from pcnn.datasets.placement import SegmentationSample
from pcnn.datasets.transforms.augment import Augmentation
from tests.datamodules.modules import kitti_module
from tests.datasets.clouds import write_scan


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for frame in range(2):
        write_scan(tmp_path / "kitti", 0, frame, 300)
    write_scan(tmp_path / "kitti", 0, 2, 300, labelled=False)
    return tmp_path / "kitti"


def module(root: Path, geometry: Placement, **options: Any) -> CloudDataModule:
    settings = {"train_sequences": [0], "voxel_size": 1.0, "cache": False, "num_workers": 0}
    settings |= {"augment": Augmentation(), "geometry": geometry}
    return kitti_module(str(root), **(settings | options))


def test_rows_of_a_training(root: Path, tmp_path: Path) -> None:
    out = tmp_path / "data.json"
    words = "bench data model=minkunet model.width=0.125 trainer=cpu dataset.voxel_size=2.0"
    words += f" dataset.root={root} dataset.num_workers=1 dataset.batch_size=2 dataset.cache=false"
    words += f" --scans 6 --steps 3 --warm-up 2 --out {out}"
    done = CliRunner().invoke(app, words.split(), env={"COLUMNS": "200"})
    assert done.exit_code == 0, f"{done.output}\n{done.exception!r}"
    _, rows = read_rows(out)
    stages = {str((row.params or {})["stage"]): row for row in rows if row.what == "stage"}
    assert set(stages) == {"read", "augment", "place", "collate", "sample"}
    parts = [row.host_ms or 0.0 for name, row in stages.items() if name != "sample"]
    assert 0 < max(parts) < (stages["sample"].host_ms or 0.0)
    (loop,) = [row for row in rows if row.what == "training"]
    found = loop.params or {}
    assert (found["steps"], found["workers"], found["batch_size"]) == (3, 1, 2)
    assert 0 < found["data_share"] <= found["between_share"] < 1
    assert found["wait_ms"] <= found["longest_wait_ms"] <= 3 * (loop.wall_ms or 0.0)
    assert 0 < (loop.n or 0) <= found["points"] <= 600
    assert "links=6" in loop.workload
    assert str(root) not in out.read_text()


def test_links_are_to_labelled_scans(root: Path, tmp_path: Path) -> None:
    (tmp_path / "links").mkdir()
    data = module(linked_set(root, tmp_path / "links", 5), OnVoxels())
    names = [path.resolve().name for i in range(5) for path in data.dataset("train").sources(i)[:1]]
    assert names == [f"00000{n % 2}.bin" for n in range(5)]
    with pytest.raises(FileNotFoundError, match="no labelled scan"):
        linked_set(tmp_path / "none", tmp_path / "other", 5)


class Wrong(OnVoxels):
    """Placement with one mistake."""

    def sample(self, cloud: Any, size: Any) -> SegmentationSample:
        made = super().sample(cloud, size)
        if WRONG == "labels":
            return replace(made, labels=made.labels.roll(1))
        if WRONG == "means":
            return replace(made, features=made.features * torch.tensor([1, 1, 1, 1.001]))
        return replace(made, geometry=super().sample(cloud, 1.01 * size).geometry)


WRONG = ""


@pytest.mark.parametrize("placement", [OnVoxels(), OnPoints(), OnPoints(thin=0.5)])
def test_right_samples_pass(root: Path, placement: Placement) -> None:
    check_sample(module(root, placement).dataset("train"), (1, 0))


@pytest.mark.parametrize("wrong", ["labels", "means", "cells"])
def test_wrong_samples_get_no_time(root: Path, wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.WRONG", wrong)
    with pytest.raises(CheckFailed, match=r"000000\.bin"):
        check_sample(module(root, Wrong()).dataset("train"), (1, 0))


class Wandering(Augmentation):
    """Draws what no seed fixes, as an augmentation with a generator of its own would."""

    def __call__(self, cloud: Any, generator: Any, partner: Any = None) -> Any:
        return replace(cloud, points=cloud.points + torch.rand(()))


def test_workers_that_make_other_batches_get_no_time(root: Path) -> None:
    check_loading(module(root, OnVoxels(), num_workers=1), 1)
    with pytest.raises(CheckFailed, match="a worker process made another batch"):
        check_loading(module(root, OnVoxels(), num_workers=1, augment=Wandering()), 1)
