"""W&B without a network: modes, identity, steps, and failures."""

from __future__ import annotations

import json
import re
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import wandb
from lightning.pytorch.utilities import rank_zero_only
from wandb.proto import wandb_internal_pb2

import pcnn.loggers
from pcnn.loggers import RunCSVLogger, RunWandbLogger, stored_run_id
from pcnn.loggers.wandb import run_name


@pytest.fixture(autouse=True)
def _quiet(monkeypatch):
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.delenv("WANDB_MODE", raising=False)
    yield
    wandb.teardown()


def chunks(data: bytes) -> Iterator[bytes]:
    """Records of a .wandb file: 7 bytes of header, then LevelDB's log format, blocks of 32 KiB."""
    position, pending = 7, b""
    while position + 7 <= len(data):
        rest = 32768 - position % 32768
        if rest < 7:  # the end of a block holds padding
            position += rest
            continue
        _, length, kind = struct.unpack_from(
            "<IHB", data, position
        )  # kind: whole, first, mid, last
        pending += data[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):
            yield pending
            pending = b""


def records(folder: Path) -> list[dict]:
    """All history rows of the offline runs in a folder, in the order of writing."""
    wandb.teardown()  # its service writes behind our back; wait for the end
    rows = []
    for path in sorted(folder.glob("wandb/offline-run-*/*.wandb"), key=lambda p: p.stat().st_mtime):
        for data in chunks(path.read_bytes()):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            if record.WhichOneof("record_type") == "history":
                items = record.history.item
                rows.append(
                    {(i.key or "/".join(i.nested_key)): json.loads(i.value_json) for i in items}
                )
    return rows


CONFIG = {
    "model": {"name": "minkunet"},
    "dataset": {"name": "kitti", "voxel_size": 0.1},
    "geometry": {"name": "voxel"},
    "task": {"name": "segmentation"},
}


def test_a_name_tells_model_and_data_and_a_resumed_run_keeps_its_own(tmp_path):
    folder = tmp_path / "2026-03-01_12-30-00"
    logger = RunWandbLogger(folder, mode="offline", config=CONFIG, tags=["test"])
    run = logger.experiment
    assert run.name == "minkunet-kitti-0.1m-2026-03-01_12-30-00"
    assert (run.id, run.config["model"]["name"]) == (logger.version, "minkunet")
    logger.log_metrics({"val/miou_present": 0.25}, step=4)
    logger.finish()
    assert wandb.run is None
    again = RunWandbLogger(folder, mode="offline", config=CONFIG)
    assert again.experiment.name is None
    again.log_metrics({"val/miou_present": 0.5}, step=4)
    again.finish()
    assert again.version == logger.version == (folder / "run_id.txt").read_text().strip()
    rows = [(row["val/miou_present"], row["trainer/global_step"]) for row in records(folder)]
    assert rows == [(0.25, 4), (0.5, 4)]
    points = {**CONFIG, "geometry": {"name": "point"}}
    assert run_name(tmp_path / "sweep_x" / "3", points) == "minkunet-kitti-0.1m-point-sweep_x-3"
    assert run_name(tmp_path / "one", None) == "one"


def test_variable_disables(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "disabled")
    logger = RunWandbLogger(tmp_path)
    logger.log_metrics({"a": 1.0}, step=0)
    logger.log_hyperparams({"b": 2})
    logger.finish()
    assert not list(tmp_path.glob("wandb/*run*"))


@pytest.mark.parametrize(
    ("asked", "works", "said"),
    [
        ("online", "offline", "did not start online .*no room"),
        ("offline", "disabled", "did not start offline .*no room"),
    ],
)
def test_a_failed_start_costs_a_mode_with_one_warning(tmp_path, monkeypatch, asked, works, said):
    start = wandb.init
    monkeypatch.setattr("pcnn.loggers.wandb.resolve_mode", lambda mode, timeout: asked)

    def init(**kwargs):
        if kwargs["mode"] != works:
            assert kwargs["settings"].init_timeout == 20
            raise wandb.errors.CommError("no room\nsecond line")
        return start(**kwargs)

    monkeypatch.setattr(wandb, "init", init)
    with pytest.warns(UserWarning, match=said) as caught:
        logger = RunWandbLogger(tmp_path)
    logger.log_metrics({"a": 1.0}, step=0)
    assert len([w for w in caught if "W&B" in str(w.message)]) == 1
    logger.log_metrics({"a": 2.0}, step=1)
    logger.finish()
    assert [row["a"] for row in records(tmp_path)] == ([1.0, 2.0] if works == "offline" else [])


def test_a_connection_lost_before_the_end_delays_it_for_a_while_alone(tmp_path, monkeypatch):
    logger = RunWandbLogger(tmp_path, mode="offline", finish_timeout=0.05)
    run, lost = logger.experiment, threading.Event()
    finish = run.finish
    monkeypatch.setattr(run, "finish", lost.wait)
    with pytest.warns(UserWarning, match="To upload later: wandb sync"):
        logger.finish()
    lost.set()
    finish()


def test_two_trainings_in_one_process_are_two_runs(tmp_path):
    first = RunWandbLogger(tmp_path / "a", mode="offline")
    first.log_metrics({"a": 1.0}, step=0)
    second = RunWandbLogger(tmp_path / "b", mode="offline")
    second.log_metrics({"a": 2.0}, step=0)
    assert second.experiment.id == second.version != first.version
    second.finish()
    assert [row["a"] for row in records(tmp_path / "b")] == [2.0]


def test_wandb_is_imported_where_it_is_used():
    for path in Path(pcnn.loggers.__file__).parent.glob("*.py"):
        assert not re.search(r"^(import|from) wandb", path.read_text(), re.MULTILINE), path


def test_an_id_is_made_once_and_by_the_first_rank(tmp_path, monkeypatch):
    folder = tmp_path / "logs" / "run"
    first = stored_run_id(folder)
    assert (folder / "run_id.txt").read_text().strip() == first == stored_run_id(folder)
    assert stored_run_id(tmp_path / "other") != first
    assert [path.name for path in folder.iterdir()] == ["run_id.txt"]
    (folder / "run_id.txt").write_text("two words\n")
    with pytest.raises(ValueError, match="run id"):
        stored_run_id(folder)
    monkeypatch.setattr(rank_zero_only, "rank", 1)
    assert stored_run_id(tmp_path / "empty") is None
    assert not (tmp_path / "empty").exists()


def test_a_row_is_written_once(tmp_path):
    logger = RunCSVLogger(tmp_path, "csv")
    for value, step in ((float("nan"), 1), (float("nan"), 1), (2.0, 1), (2.0, 2)):
        logger.log_metrics({"a": value}, step)
    logger.save()
    lines = (tmp_path / "csv/version_0/metrics.csv").read_text().splitlines()
    assert lines[1:] == ["nan,1", "2.0,1", "2.0,2"]
