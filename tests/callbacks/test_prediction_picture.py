import numpy as np
import pytest
import torch
from matplotlib.image import imread

from pcnn.callbacks import PredictionPicture
from pcnn.callbacks.scan_picture import Scan
from tests.callbacks.segmenting import Clouds, Segmenting
from tests.callbacks.tiny import trainer_for
from tests.visualize.view.test_page import held


def test_validation_and_test_draw_the_first_scan(tmp_path):
    picture = PredictionPicture(tmp_path)
    trainer = trainer_for(tmp_path, [picture], max_steps=6, enable_checkpointing=False)
    trainer.fit(Segmenting(), Clouds())
    path = tmp_path / "predictions.png"
    first = imread(path)
    pixels = (first[..., :3] * 255).round().astype(int)
    assert (pixels == [0xC2, 0x41, 0x0C]).all(-1).any()  # the data module says simulated
    path.unlink()
    trainer.test(Segmenting(), Clouds(), verbose=False)
    assert imread(path).shape == first.shape
    content, arrays = held(tmp_path / "predictions.html")
    (cloud,) = content["clouds"]
    assert list(cloud["labels"]) == ["prediction", "truth"]
    assert content["title"].endswith("(test)")
    assert content["simulated"] == "SIMULATED DATA"
    assert len(arrays[cloud["arrays"]["rows"]]) > 0


def test_a_scan_without_points_has_no_page(tmp_path):
    empty = Scan(np.empty((0, 3), np.float32), np.empty(0, np.int64), None, "a")
    assert PredictionPicture(tmp_path).view(empty, Segmenting(), None, "val") is None


def test_pages_are_bounded_and_can_be_left_out(tmp_path):
    for limit in (0, 10):
        picture = PredictionPicture(tmp_path, view_points=limit)
        trainer_for(tmp_path, [picture], enable_checkpointing=False).test(
            Segmenting(), Clouds(), verbose=False
        )
        assert (tmp_path / "predictions.html").exists() == (limit > 0)
    content, arrays = held(tmp_path / "predictions.html")
    assert len(arrays[content["clouds"][0]["arrays"]["rows"]]) == 10


def test_nothing_is_drawn_by_sanity_checks_dry_runs_and_tasks_without_scans(tmp_path):
    class Silent(Segmenting):
        def validation_step(self, batch, batch_idx):
            super().validation_step(batch, batch_idx)

    options = {"max_steps": 2, "enable_checkpointing": False}
    for task, more in (
        (Segmenting(), {"limit_val_batches": 1, "check_val_every_n_epoch": 5}),
        (Segmenting(), {"fast_dev_run": True}),
        (Silent(), {"val_check_interval": 1}),
    ):
        trainer_for(tmp_path, [PredictionPicture(tmp_path)], **options, **more).fit(task, Clouds())
    assert not (tmp_path / "predictions.png").exists()
    assert not (tmp_path / "predictions.html").exists()


def test_every_n_validations(tmp_path):
    drawn = []

    class Counting(PredictionPicture):
        def draw(self, first, pl_module, data, when):
            drawn.append(pl_module.global_step)

    trainer = trainer_for(
        tmp_path,
        [Counting(tmp_path, every_n_validations=2)],
        max_steps=6,
        val_check_interval=1,
        enable_checkpointing=False,
    )
    trainer.fit(Segmenting(), Clouds())
    assert drawn == [1, 3, 5]
    with pytest.raises(ValueError, match="at least 1"):
        PredictionPicture(tmp_path, 0)


def scan_of(counts):
    labels = np.repeat(np.arange(len(counts)), counts)
    points = np.random.default_rng(0).normal(size=(len(labels), 3)).astype(np.float32)
    return Scan(points, labels[::-1].copy(), labels, "x")


def test_thinning_keeps_rare_classes_whole():
    scan = scan_of([90_000, 30_000, 40, 1])
    thin = scan.thinned(20_000)
    kept = np.bincount(thin.target)
    assert 19_990 <= len(thin.points) <= 20_000
    assert kept[2:].tolist() == [40, 1]
    assert abs(int(kept[0]) - int(kept[1])) <= 1
    # rows stay rows
    where = {tuple(p): (a, b) for p, a, b in zip(scan.points.tolist(), scan.pred, scan.target)}  # noqa: B905
    some = range(0, len(thin.points), 997)
    assert all(
        where[tuple(thin.points[i].tolist())] == (thin.pred[i], thin.target[i]) for i in some
    )
    again = scan.thinned(20_000)
    assert np.array_equal(again.points, thin.points)


def test_thinning_leaves_small_scans_alone_and_works_without_truth():
    scan = scan_of([5, 3])
    assert scan.thinned(8) is scan
    unlabelled = Scan(scan.points, scan.pred, None, "x")
    assert len(unlabelled.thinned(4).points) == 4
    assert unlabelled.thinned(4).target is None


def test_scan_of_anything_else_is_none():
    assert Scan.of(None) is None
    assert Scan.of({"loss": 1}) is None
    scan = Scan.of(
        {"points": torch.zeros(2, 3).half(), "pred": torch.tensor([1, 2], dtype=torch.uint8)}
    )
    assert scan is not None
    assert scan.points.dtype == np.float32
    assert scan.pred.dtype == np.int64
    assert scan.target is None
