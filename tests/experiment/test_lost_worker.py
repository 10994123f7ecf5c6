"""A loader's process that was killed is told as such, with what to change."""

from __future__ import annotations

from pathlib import Path

import pytest

from pcnn.errors import ConfigError
from pcnn.experiment.job import told_lost_worker


def test_a_killed_worker_is_told_with_what_to_change(tmp_path: Path) -> None:
    text = "DataLoader worker (pid 7) is killed by signal: Killed. \nmore"
    refused = pytest.raises(ConfigError, match="was lost: DataLoader worker")
    with refused as found, told_lost_worker(tmp_path):
        raise RuntimeError(text)
    assert "dataset.num_workers" in str(found.value)
    assert "holds no last.ckpt. Then give the same command again" in str(found.value)


def test_other_errors_pass(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="something else"), told_lost_worker(tmp_path):
        raise RuntimeError("something else")
