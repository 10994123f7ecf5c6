import pytest
import torch
import wandb

from pcnn.callbacks import WandbMedia
from pcnn.loggers import RunWandbLogger, guard
from tests.callbacks.segmenting import Clouds, Segmenting
from tests.callbacks.tiny import trainer_for


@pytest.fixture(autouse=True)
def _quiet(monkeypatch):
    monkeypatch.setenv("WANDB_SILENT", "true")
    yield
    wandb.teardown()


def fit(tmp_path, logger, **options):
    trainer = trainer_for(
        tmp_path,
        [WandbMedia(scans=2)],
        logger=guard([logger]),
        max_steps=2,
        val_check_interval=2,
        enable_checkpointing=False,
        **options,
    )
    trainer.fit(Segmenting(), Clouds())
    return trainer


def test_table_chart_and_scans_are_sent(tmp_path, monkeypatch):
    sent = {}
    logger = RunWandbLogger(tmp_path, mode="offline")
    log = logger.log_metrics
    monkeypatch.setattr(
        logger, "log_metrics", lambda metrics, step=None: (sent.update(metrics), log(metrics, step))
    )
    fit(tmp_path, logger)
    kinds = ("prediction", "truth")
    scans = {f"val/scan_{i}/{kind}" for i in (0, 1) for kind in kinds}
    assert scans | {"val/iou_table", "val/confusion"} <= set(sent)
    assert all(isinstance(sent[key], wandb.Object3D) for key in scans)
    table = sent["val/iou_table"]
    assert table.columns == ["class", "iou", "points", "predicted points"]
    assert [row[0] for row in table.data] == ["road", "car", "building"]
    assert sum(row[2] for row in table.data) == 3 * 350
    logger.finish()
    media = list((tmp_path / "wandb").glob("offline-run-*/files/media/object3D/**/*.pts.json"))
    assert len(media) == 4
    assert "SIMULATED" in str(sent["val/scan_0/truth"]._caption)


def test_a_number_of_scans_out_of_range():
    with pytest.raises(ValueError, match="scans"):
        WandbMedia(scans=-1)


def test_object_3d_has_colours():
    from pcnn.callbacks.scan_picture import Scan
    from pcnn.callbacks.wandb_iou_table import object_3d

    scan = Scan(torch.rand(5, 3).numpy(), torch.arange(5).numpy(), None, "x")
    thing = object_3d(scan, scan.pred, torch.randint(0, 255, (4, 3)).byte().numpy(), "x")
    assert isinstance(thing, wandb.Object3D)
