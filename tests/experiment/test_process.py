"""Surroundings of a run: its lock, signals of a scheduler, one folder, errors of a machine."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from pcnn.callbacks import Stopped
from pcnn.errors import ConfigError
from pcnn.experiment import process
from pcnn.experiment.process import locked
from pcnn.experiment.run_folder import LOCK, drop_if_empty
from tests.forking import require_fork


def held_by_a_child(folder: Path) -> int:
    """Fork a child that holds the lock, and a grandchild for 2 s, as a worker of a loader is."""
    require_fork()
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with locked(folder):
                if os.fork():
                    os.write(writes, b"!")
                    time.sleep(60)
                time.sleep(2)
        finally:
            os._exit(1)
    os.close(writes)
    assert os.read(reads, 1) == b"!"
    return child


def test_the_second_process_is_refused_by_name_and_id(tmp_path: Path) -> None:
    child = held_by_a_child(tmp_path / "run")
    with (
        pytest.raises(ConfigError, match=f"process {child} "),
        locked(tmp_path / "run"),
    ):
        pass
    assert (tmp_path / "run" / LOCK).exists()
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    # a killed run leaves a file and no lock, also while its workers live
    assert (tmp_path / "run" / LOCK).exists()
    with locked(tmp_path / "run"):
        assert str(os.getpid()) in (tmp_path / "run" / LOCK).read_text()
    drop_if_empty(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def preempted(seen: list[int]) -> None:
    with process.stoppable(Path(), False) as stop:
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
