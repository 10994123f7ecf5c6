from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from pcnn.errors import ConfigError
from pcnn.experiment.job import LOCK, locked
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
    assert not list((tmp_path / "run").iterdir())


def test_other_ranks_do_not_ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pcnn.experiment.job.rank", lambda: 1)
    with locked(tmp_path / "run"):
        assert not (tmp_path / "run").exists()


def test_a_file_system_without_locks_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def absent(*arguments: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr("fcntl.lockf", absent)
    with locked(tmp_path):
        assert "has no locks" in caplog.text
