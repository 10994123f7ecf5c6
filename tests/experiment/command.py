"""Run train.py and eval.py, as a user does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]

#: A training of seconds on `tests.experiment.tiny_kitti`, validation inside the epoch included.
TINY = (
    "model.width=0.125",
    "dataset.train_sequences=[0]",
    "dataset.voxel_size=0.4",
    "dataset.batch_size=1",
    "dataset.num_workers=0",
    "trainer=cpu",
    "trainer.max_steps=6",
    "trainer.val_check_interval=3",
    "trainer.log_every_n_steps=1",
    "logger=csv",
)


def run(
    program: str, *arguments: str, cwd: Path, expect: int | None = 0, timeout: float = 240
) -> subprocess.CompletedProcess[str]:
    """Run a program of the repository in a folder; its exit code must be `expect`."""
    done = subprocess.run(
        [sys.executable, str(REPOSITORY / program), *arguments],
        cwd=cwd,
        env={**os.environ, "OMP_NUM_THREADS": "1", "WANDB_MODE": "offline", "WANDB_SILENT": "true"},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        start_new_session=True,  # signals to its group are not for the tests
    )
    assert expect is None or done.returncode == expect, f"{done.stdout}\n{done.stderr}"
    return done
