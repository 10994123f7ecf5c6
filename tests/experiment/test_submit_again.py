"""A job that loses its machine is submitted again by what started it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from pcnn.callbacks import Stopped
from pcnn.experiment import job


def preempted(seen: list[int]) -> None:
    with job.stoppable("{} came".format) as stop:
        stop.deferring = True
        for _ in range(2):  # a second one ends nothing at once
            os.kill(os.getpid(), signal.SIGUSR2)
        assert not seen
        stop.check()


def test_the_handler_of_a_launcher_submits_the_job() -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGUSR2, lambda signum, frame: seen.append(signum))
    try:
        with pytest.raises(Stopped) as error:
            preempted(seen)
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert seen == [signal.SIGUSR2]
    assert error.value.code == 128 + signal.SIGUSR2


@pytest.mark.parametrize("array", [False, True])
def test_slurm_is_asked_where_there_is_no_launcher(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    array: bool,
) -> None:
    program = tmp_path / "scontrol"
    program.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    if array:
        monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "16")
        monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "3")
    job.submit_again(signal.SIGUSR1)
    name = "16_3" if array else "17"
    assert (tmp_path / "asked").read_text() == f"requeue {name}\n"
    assert f"SLURM job {name}: submitted again" in capsys.readouterr().err


def test_ranks_of_a_launcher_need_the_name_of_one_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    from types import SimpleNamespace

    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    given: list[str] = []
    found = SimpleNamespace(mode=RunMode.RUN, overrides=SimpleNamespace(hydra=given))
    monkeypatch.setattr(HydraConfig, "get", lambda: found)
    job.check_one_folder()
    for name, value in {"WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "none"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(job.ConfigError, match=r"hydra\.run\.dir=logs/NAME resume=auto"):
        job.check_one_folder()
    given.append("hydra.run.dir=logs/here")
    job.check_one_folder()
