"""The quick set: simulated where no root is given."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pcnn.datamodules import CloudDataModule
from tests.datamodules.modules import kitti_module

FEW = {"seed": 0, "train_scans": 1, "val_scans": 1, "workers": 1, "progress": False}


def test_no_root_simulates(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    def module() -> CloudDataModule:
        return kitti_module(data_dir=str(tmp_path), simulate=FEW, num_workers=0)

    data = module()
    data.prepare_data()
    data.setup("fit")
    assert data.source_kind == "simulated"
    assert data.data_root.parent == tmp_path / "simulated"
    assert json.loads((data.data_root / "SIMULATED.json").read_text())["train_scans"] == 1
    assert "SIMULATED" in caplog.text
    train, val = data.dataset("train"), data.dataset("val")
    assert (len(train), len(val)) == (1, 1)
    assert train.read(0).n_points > 50_000
    (batch,) = data.val_dataloader()
    assert batch.names[0].startswith("08/")
    # a second run finds the set
    again = module()
    again.setup("fit")
    assert again.data_root == data.data_root
