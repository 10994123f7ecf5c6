"""From scans to label files: views, labels that are not public."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import pytest
import torch

from pcnn.datamodules import CloudDataModule
from pcnn.errors import ConfigError
from pcnn.experiment.build import LabelWriter, check_apart
from pcnn.losses import CrossEntropy
from pcnn.models import MinkUNet42
from pcnn.tasks import EvaluationViews, SegmentationTask
from pcnn.tasks.schedules import constant
from tests.datamodules.modules import folder_module, kitti_module
from tests.experiment.tiny_kitti import write_tiny_kitti
from tests.tasks.quiet import trainer_for

pytestmark = pytest.mark.filterwarnings("ignore")


def untrained(views: EvaluationViews | None = None) -> SegmentationTask:
    torch.manual_seed(0)
    optimizer: Any = partial(torch.optim.SGD, lr=0.1)
    net = MinkUNet42(width=0.125)
    with torch.no_grad():
        head: Any = net.head.module  # type: ignore[union-attr]
        head.weight[[8, 12, 17]] *= 1000  # road, building, pole: what there is
        head.bias[[8, 12, 17]] += 10_000
    return SegmentationTask(net, names(), CrossEntropy(), optimizer, constant, views=views)


def names() -> tuple[str, ...]:
    return kitti_module().class_names


def scans(root: Path, sequence: int) -> CloudDataModule:
    return kitti_module(
        root=str(root),
        voxel_size=0.4,
        crop=None,
        test_sequences=[sequence],
        val_batch_size=2,
        num_workers=0,
    )


def figures_of(
    folder: Path, task: SegmentationTask, data: CloudDataModule, *callbacks: L.Callback
) -> dict[str, float]:
    trainer = trainer_for(folder, callbacks=list(callbacks))
    (figures,) = trainer.test(task, data, verbose=False)
    return dict(figures)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_kitti(tmp_path_factory.mktemp("kitti"), {0: 1, 8: 3, 11: 2}, points=120)


def official_miou(root: Path, predictions: Path, sequence: str) -> float:
    """Mean IoU over the 19 classes as the official evaluator counts it, from files alone."""
    classes = [10, 11, 15, 18, 20, 30, 31, 32, 40, 44, 48, 49, 50, 51, 70, 71, 72, 80, 81]
    counts = np.zeros((20, 20), dtype=np.int64)
    for path in sorted((root / "sequences" / sequence / "labels").glob("*.label")):
        truth = np.fromfile(path, "<u4") & 0xFFFF
        own = np.fromfile(predictions / "sequences" / sequence / "predictions" / path.name, "<u4")
        assert truth.shape == own.shape
        for t, p in zip(truth, own, strict=True):
            counts[1 + classes.index(t) if t in classes else 0, 1 + classes.index(p)] += 1
    counts = counts[1:]  # points without a true label do not count
    hits = counts[:, 1:].diagonal()
    return float(np.mean(hits / (counts.sum(1) + counts[:, 1:].sum(0) - hits + 1e-15)))


def test_written_files_have_the_figures_of_the_views(root: Path, tmp_path: Path) -> None:
    views = EvaluationViews(rotations=[0.0, 90.0, 180.0, 270.0])
    figures = figures_of(tmp_path, untrained(views), scans(root, 8), LabelWriter(tmp_path / "out"))
    assert figures["test/miou"] != figures["test/tta/miou"]
    measured = official_miou(root, tmp_path / "out", "08")
    assert measured == pytest.approx(figures["test/tta/miou"], abs=1e-7)


def test_scans_without_public_labels_are_predicted(root: Path, tmp_path: Path) -> None:
    labels = root / "sequences" / "11" / "labels"
    labels.rename(tmp_path / "kept_back")
    try:
        figures = figures_of(tmp_path, untrained(), scans(root, 11), LabelWriter(tmp_path / "out"))
    finally:
        (tmp_path / "kept_back").rename(labels)
    assert figures == {}
    files = sorted((tmp_path / "out/sequences/11/predictions").iterdir())
    assert [path.name for path in files] == ["000000.label", "000001.label"]
    assert len(np.fromfile(files[0], "<u4")) == 120


def test_predictions_never_lie_among_the_data(root: Path, tmp_path: Path) -> None:
    check_apart(root, scans(root, 8))  # the official place, beside velodyne and labels
    for name, labels in (("a", "a_label.npy"), ("velodyne/b", "labels/b.npy")):
        for path in (tmp_path / f"{name}.npy", tmp_path / labels):
            path.parent.mkdir(exist_ok=True)
        np.save(tmp_path / f"{name}.npy", np.zeros((5, 4)))
        np.save(tmp_path / labels, np.zeros(5, np.int64))
    own = folder_module(str(tmp_path), 0.5, class_names=["a"], num_workers=0, val_fraction=0.5)
    check_apart(tmp_path / "out", own)
    with pytest.raises(ConfigError, match="would lie among the data"):
        check_apart(tmp_path, own)
