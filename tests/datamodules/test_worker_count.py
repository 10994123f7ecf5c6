from pathlib import Path

import lightning as L
import numpy as np
import pytest

from pcnn import cores
from tests.datamodules.modules import folder_module


def test_ranks_of_a_machine_share_its_cores_and_small_sets_take_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        np.save(tmp_path / f"{name}.npy", np.ones((5, 3), np.float32))
        np.save(tmp_path / f"{name}_label.npy", np.zeros(5, np.int64))
    monkeypatch.setattr("pcnn.datamodules.exact_loading.available_cores", lambda: 16)
    data = folder_module(str(tmp_path), 0.5, class_names=["all"])
    data.setup("fit")
    assert data.workers == 15
    assert data.val_dataloader()._loader.num_workers == 1  # one cloud validates
    data.trainer = L.Trainer(accelerator="cpu", devices=12, strategy="ddp", logger=False)
    assert data.workers == 0
    data.num_workers = 5
    assert data.workers == 1  # a core each
    data.trainer = L.Trainer(accelerator="cpu", logger=False)
    assert data.workers == 5
    data.num_workers = None
    assert data.workers == 2  # a training on the CPU


def test_cores_of_a_control_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quota = tmp_path / "cpu.max"
    monkeypatch.setattr(cores, "_QUOTA", quota)
    monkeypatch.setattr(cores.os, "sched_getaffinity", lambda _: range(8), raising=False)
    assert cores.available_cores() == 8
    for limit, found in (("max", 8), ("350000", 3), ("50000", 1), ("6400000", 8)):
        quota.write_text(f"{limit} 100000\n")
        assert cores.available_cores() == found
