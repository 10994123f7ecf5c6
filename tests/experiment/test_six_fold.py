"""Figures of S3DIS over six runs, against sums of intersections and unions made apart."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf

from pcnn.datasets.s3dis.classes import CLASS_NAMES
from pcnn.errors import FileError
from pcnn.experiment.errors import ConfigError
from pcnn.experiment.six_fold import join, read_counts, write_counts
from pcnn.metrics.confusion import ConfusionMatrix
from tests.cli.invoking import invoke

Labels = tuple[np.ndarray, np.ndarray]


def labels(area: int, points: int = 3000) -> Labels:
    """True and predicted classes; 255 in the truth counts nowhere, and Area 2 has no beam."""
    rng = np.random.default_rng(area)
    truth = rng.integers(0, 13, points * area)
    truth[truth == 3] = 2 if area == 2 else 3
    pred = np.where(rng.random(len(truth)) < 0.6, truth, rng.integers(0, 13, len(truth)))
    truth[rng.random(len(truth)) < 0.05] = 255
    return truth, pred


def counted(truth: np.ndarray, pred: np.ndarray) -> torch.Tensor:
    matrix = ConfusionMatrix(13)
    matrix.update(torch.from_numpy(pred), torch.from_numpy(truth))
    return matrix.compute()


def write_run(folder: Path, area: int, **options: object) -> Path:
    given = {"source": "real", "dataset": "s3dis", "task": "segmentation", "split": "test"}
    given |= {"areas": [area], "val_areas": None, "limit_val": None, **options}
    cfg = {
        "dataset": {
            "name": given["dataset"],
            "test_areas": given["areas"],
            "val_areas": given["val_areas"],
            "limit_val": given["limit_val"],
        },
        "task": {"name": given["task"]},
        "data": {"source": given["source"]},
        **{group: {"name": "x"} for group in ("model", "geometry", "engine")},
        "trainer": {},
    }
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(OmegaConf.to_yaml(OmegaConf.create(cfg)))
    counts = counted(*labels(area))
    split = given["split"]
    write_counts(folder, {split: counts, f"{split}/tta": 2 * counts}, CLASS_NAMES)
    return folder


def accumulated(areas: range) -> dict[str, float]:
    """As Pointcept accumulates: intersection, union and target of every class, over areas."""
    intersection, union, target = np.zeros(13), np.zeros(13), np.zeros(13)
    for area in areas:
        truth, pred = labels(area)
        truth, pred = truth[truth != 255], pred[truth != 255]
        for c in range(13):
            intersection[c] += ((truth == c) & (pred == c)).sum()
            union[c] += ((truth == c) | (pred == c)).sum()
            target[c] += (truth == c).sum()
    return {
        "miou": float((intersection / (union + 1e-10)).mean()),
        "macc": float((intersection / (target + 1e-10))[target > 0].mean()),
        "accuracy": float(intersection.sum() / target.sum()),
    }


def test_six_runs_give_the_figures_of_all_points(tmp_path: Path):
    folders = [write_run(tmp_path / f"run{area}", area) for area in (3, 1, 2, 6, 5, 4)]
    output = tmp_path / "out" / "six.json"
    said = invoke("sixfold", *map(str, folders), "--output", str(output))
    figures = json.loads(output.read_text())
    assert (figures["source"], figures["areas"], figures["missing"]) == ("real", [*range(1, 7)], [])
    single = figures["passes"]["single pass"]
    for name, areas in (("6-fold", range(1, 7)), ("Area 2", range(2, 3)), ("Area 6", range(6, 7))):
        for figure, value in accumulated(areas).items():
            assert single[name][figure] == pytest.approx(value, abs=1e-9)
            assert figures["passes"]["tta"][name][figure] == pytest.approx(value, abs=1e-9)
    assert set(single["6-fold"]["iou"]) == set(CLASS_NAMES)
    # the figure of the sum is not the mean of the figures
    mean = np.mean([single[f"Area {area}"]["miou"] for area in range(1, 7)])
    assert abs(mean - single["6-fold"]["miou"]) > 1e-4
    assert f"{100 * single['6-fold']['miou']:.2f}" in said
    assert "not 6-fold" not in said


def test_fewer_runs_are_not_called_six_fold(tmp_path: Path):
    folders = [write_run(tmp_path / f"run{area}", area, source="simulated") for area in (1, 5)]
    said = invoke("sixfold", *map(str, folders))
    assert "areas 1, 5 of 6" in said
    assert "no run tested on areas 2, 3, 4, 6: these are not 6-fold figures" in said
    assert "SIMULATED" in said


def test_a_validation_stands_for_a_test(tmp_path: Path):
    (fold,) = join([write_run(tmp_path / "a", 4, split="val")]).folds
    assert fold.areas == (4,)
    assert set(fold.counts.passes) == {"", "/tta"}
    (fold,) = join([write_run(tmp_path / "b", 4, split="val", val_areas=[2, 3])]).folds
    assert fold.areas == (2, 3)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"areas": [1, 2]}, "Area 1 was tested by .*keep one"),
        ({"source": "simulated"}, "one has simulated rooms, the other real ones"),
        ({"dataset": "kitti"}, "dataset=kitti task=segmentation; 6-fold figures need"),
        ({"task": "classification"}, "dataset=s3dis task=classification; 6-fold"),
        ({"limit_val": 3}, "limit_val left out some rooms"),
        ({"split": "train"}, "neither a test nor a validation"),
    ],
)
def test_runs_that_do_not_go_together(tmp_path: Path, wrong: dict[str, object], message: str):
    first = write_run(tmp_path / "first", 1)
    with pytest.raises(ConfigError, match=message):
        join([first, write_run(tmp_path / "second", 2, **wrong)])


def test_what_is_no_run_is_named(tmp_path: Path):
    with pytest.raises(ConfigError, match="is not a run folder"):
        join([tmp_path])
    folder = write_run(tmp_path / "a", 1)
    path = folder / "confusion.json"
    path.write_text(path.read_text().replace("[[", "[[-", 1))
    with pytest.raises(FileError, match=r"test holds .* counts for 13 classes"):
        read_counts(folder)
    path.write_text("{")
    with pytest.raises(FileError, match=r"confusion\.json"):
        read_counts(folder)
    path.unlink()
    said = invoke("sixfold", str(folder), code=2)
    assert "confusion.json" in said
    with pytest.raises(ConfigError, match="give the folders"):
        join([])


def test_counts_come_back(tmp_path: Path):
    counts = counted(*labels(1))
    assert write_counts(tmp_path, {}, CLASS_NAMES) is None
    write_counts(tmp_path, {"val": counts}, CLASS_NAMES)
    read = read_counts(tmp_path)
    assert read.class_names == CLASS_NAMES
    assert torch.equal(read.passes["val"], counts)
