"""W&B without a network: modes, identity and failures; rows of the csv file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import wandb
from lightning.pytorch.utilities import rank_zero_only

from pcnn.loggers import RunCSVLogger, RunWandbLogger, stored_run_id
from pcnn.loggers.wandb import resolve_mode

CONFIG = {"model": {"name": "minkunet"}, "dataset": {"name": "kitti"}}


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    for name in ("WANDB_MODE", "WANDB_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    yield
    wandb.teardown()


def test_a_name_tells_model_and_data_and_a_resumed_run_keeps_its_own(tmp_path: Path) -> None:
    folder = tmp_path / "2026-03-01_12-30-00"
    logger = RunWandbLogger(folder, mode="offline", config=CONFIG, tags=["test"])
    run = logger.experiment
    assert run.name == "minkunet-kitti-2026-03-01_12-30-00"
    assert (run.id, run.config["model"]["name"]) == (logger.version, "minkunet")
    logger.log_metrics({"val/miou_present": 0.25}, step=4)
    logger.finish()
    assert wandb.run is None
    again = RunWandbLogger(folder, mode="offline", config=CONFIG)
    assert again.experiment.name is None
    assert again.version == logger.version == (folder / "run_id.txt").read_text().strip()
    other = RunWandbLogger(tmp_path / "b", mode="offline")  # in one process two runs
    assert other.experiment.id == other.version != again.version
    other.finish()


@pytest.mark.parametrize(("asked", "works"), [("online", "offline"), ("offline", "disabled")])
def test_a_failed_start_costs_a_mode_with_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str, works: str
) -> None:
    start = wandb.init
    monkeypatch.setattr("pcnn.loggers.wandb.resolve_mode", lambda mode: asked)

    def init(**kwargs: Any) -> Any:
        if kwargs["mode"] != works:
            assert kwargs["settings"].init_timeout == 20
            raise wandb.errors.CommError("no room\nsecond line")
        return start(**kwargs)

    monkeypatch.setattr(wandb, "init", init)
    with pytest.warns(UserWarning, match="no room") as caught:
        logger = RunWandbLogger(tmp_path)
    assert len([w for w in caught if "W&B" in str(w.message)]) == 1
    logger.log_metrics({"a": 1.0}, step=0)
    logger.finish()
    assert len(list(tmp_path.glob("wandb/offline-run-*"))) == int(works == "offline")


@pytest.mark.parametrize(
    ("given", "variable", "known", "mode", "warns"),
    [
        ("disabled", "offline", True, "disabled", False),
        (None, "offline", True, "offline", False),
        (None, None, True, "online", False),
        (None, None, False, "offline", False),
        ("online", None, False, "offline", True),
        (None, None, RuntimeError("no network"), "offline", True),
        ("of", None, True, None, False),
    ],
)
def test_the_option_then_the_variable_then_the_login(
    monkeypatch: pytest.MonkeyPatch,
    recwarn: pytest.WarningsRecorder,
    given: Any,
    variable: str | None,
    known: Any,
    mode: str | None,
    warns: bool,
) -> None:
    def login(prompt: bool) -> bool:
        if isinstance(known, Exception):
            raise known
        return bool(known)

    monkeypatch.setattr(wandb, "login", login)
    if variable:
        monkeypatch.setenv("WANDB_MODE", variable)
    if mode is None:
        with pytest.raises(ValueError, match=given or variable):
            resolve_mode(given)
    else:
        assert resolve_mode(given) == mode
    assert len(recwarn) == warns


def test_an_id_is_made_once_and_by_the_first_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_row_is_written_once(tmp_path: Path) -> None:
    logger = RunCSVLogger(tmp_path, "csv")
    for value, step in ((float("nan"), 1), (float("nan"), 1), (2.0, 1), (2.0, 2)):
        logger.log_metrics({"a": value}, step)
    logger.save()
    lines = (tmp_path / "csv/version_0/metrics.csv").read_text().splitlines()
    assert lines[1:] == ["nan,1", "2.0,1", "2.0,2"]
