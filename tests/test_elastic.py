"""torchrun starts ranks again when one is killed, and the run goes on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.experiment.command import REPOSITORY, TINY, TWO_PROCESSES, VARIABLES
from tests.experiment.tiny_kitti import write_tiny_kitti

#: A store of their own for the ranks of every start: in the agent's, which torch shares among them,
#: a rank may find the address of one that was killed.
FRESH = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}


@pytest.mark.slow
def test_a_killed_rank_is_started_again_and_goes_on(tmp_path: Path) -> None:
    write_tiny_kitti(tmp_path / "kitti", {0: 5, 8: 2})
    kill = "+callbacks.kill={_target_:tests.experiment.kill.KillOnce,step:4,marker:killed.x}"
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    command = (*launcher, "--max-restarts", "1", str(REPOSITORY / "train.py"), *TINY)
    options = (*TWO_PROCESSES, "dataset.root=kitti", "callbacks.checkpoint.checkpoint_every=2")
    place = ("hydra.run.dir=run", "resume=auto", kill, "allow_targets=[tests.experiment.kill]")
    done = subprocess.run(
        [sys.executable, *command, *options, *place],
        cwd=tmp_path,
        env={**os.environ, **VARIABLES, **FRESH, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "run continues after step 4" in done.stdout
    last = torch.load(tmp_path / "run" / "checkpoints" / "last.ckpt", weights_only=True)
    assert last["global_step"] == 6
