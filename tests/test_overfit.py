"""One real scan, memorised: data, network, loss and metric work together on real files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.data
@pytest.mark.timeout(600)
def test_a_real_scan_is_learnt_by_heart(data_root: Path, tmp_path: Path) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    command = [
        sys.executable,
        str(ROOT / "train.py"),
        *("logger=csv", "augment=none", "dataset.crop=20", "dataset.limit_train=1"),
        *("dataset.limit_val=1", "dataset.val_sequences=[0]"),
        *("trainer.max_steps=130", "trainer.val_check_interval=65"),
        f"dataset.root={data_root / 'kitti'}",
        "dataset.train_sequences=[0]",
        f"dataset.data_dir={tmp_path}",
        "trainer=cpu",
        f"hydra.run.dir={tmp_path / 'run'}",
    ]
    started = time.monotonic()
    run = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    seconds = time.monotonic() - started
    assert run.returncode == 0, run.stderr
    assert "4 of 5 scans have no label and are left out" in run.stdout + run.stderr
    written = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert written["source"] == "real"
    # per point, evaluation mode, over the classes present in the 20 m crop
    assert written["metrics"]["val/miou_present"] > 0.95
    print(f"overfit in {seconds:.0f} s: {written['metrics']['val/miou_present']:.3f}")
