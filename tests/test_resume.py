"""A run that was killed goes on exactly where it was: the same weights, bit for bit."""

from __future__ import annotations

import csv
import shlex
import signal
from pathlib import Path

import pytest
import torch

from tests.experiment.command import QUICK, TINY, TWO_PROCESSES, run
from tests.experiment.tiny_kitti import write_tiny_kitti

# 5 scans, 12 steps: the kill falls into the second epoch, between the checkpoints at 4 and 8;
# validation after steps 3, 6, 9, 12 lies inside the epochs
OPTIONS = (
    *TINY,
    "dataset.root=kitti",
    "trainer.max_steps=12",
    "callbacks.checkpoint.checkpoint_every=4",
    "callbacks.checkpoint.share=1",
    *QUICK,
)
ALLOW = "allow_targets=[tests.experiment.kill]"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data and the uninterrupted run `straight`."""
    root = tmp_path_factory.mktemp("resume")
    write_tiny_kitti(root / "kitti", {0: 5, 8: 2})
    run("train.py", *OPTIONS, "hydra.run.dir=straight", cwd=root)
    return root


def state(folder: Path) -> dict[str, torch.Tensor]:
    checkpoint = torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)
    return {**checkpoint["state_dict"], "steps": torch.tensor(checkpoint["global_step"])}


def logged_steps(path: Path) -> list[int]:
    with path.open() as file:
        return [int(row["step"]) for row in csv.DictReader(file)]


# a run without workers is killed at any moment in tests/test_kills.py
def test_killed_between_two_checkpoints(folder: Path) -> None:
    name = "killed"
    kill = "+callbacks.kill={_target_:tests.experiment.kill.KillOnce,step:7,marker:killed.x}"
    options = ("dataset.num_workers=2", "logger=[csv,wandb]", kill, ALLOW, f"hydra.run.dir={name}")
    run("train.py", *OPTIONS, *options, cwd=folder, expect=-signal.SIGKILL)
    assert not (folder / name / "metrics.json").exists()
    run("train.py", f"resume={name}", ALLOW, cwd=folder)
    straight, resumed = state(folder / "straight"), state(folder / name)
    assert straight["steps"] == resumed["steps"] == 12
    assert straight.keys() == resumed.keys()
    for key in straight:
        assert torch.equal(straight[key], resumed[key]), key
    # one run in the tracker, whose steps only increase
    runs = {path.name.rpartition("-")[2] for path in folder.glob(f"{name}/wandb/offline-run-*")}
    assert runs == {(folder / name / "run_id.txt").read_text().strip()}
    before, after = (logged_steps(path) for path in sorted(folder.glob(f"{name}/csv/*/*.csv")))
    assert before == sorted(before)
    assert after == sorted(after)
    assert before[-1] < 7
    assert after[0] == 4
    assert after[-1] == 12  # of the evaluation of the best state


def test_ctrl_c_ends_behind_the_step_and_prints_how_to_go_on(folder: Path) -> None:
    stop = "{_target_:tests.experiment.kill.KillOnce,step:6,marker:stopped.x,signum:2}"
    options = (*OPTIONS, "dataset.num_workers=2", f"+callbacks.stop={stop}", ALLOW)
    done = run("train.py", *options, "hydra.run.dir=to stop", cwd=folder, expect=130)
    assert state(folder / "to stop")["steps"] == 7
    assert "Traceback" not in done.stderr
    said = done.stderr.strip().splitlines()
    assert said[-2] == "Ctrl-C: stopped. To go on:"
    # what no file keeps is said once more
    assert shlex.split(said[-1])[2:] == ['resume="to stop"', options[-2], ALLOW]
    run("train.py", *shlex.split(said[-1])[2:], cwd=folder)
    straight, resumed = state(folder / "straight"), state(folder / "to stop")
    assert all(torch.equal(straight[key], resumed[key]) for key in straight)


def test_ranks_stop_at_one_step_when_the_first_gets_a_sigterm(folder: Path) -> None:
    stop = "{_target_:tests.experiment.kill.KillOnce,step:3,marker:ranks.x,signum:15}"
    options = (*OPTIONS, *TWO_PROCESSES, "logger=[]", f"+callbacks.stop={stop}", ALLOW)
    options = (*options, "hydra.run.dir=ranks", "resume=auto")
    done = run("train.py", *options, cwd=folder, expect=143)
    assert state(folder / "ranks")["steps"] == 4  # they agree in the validation behind step 6
    assert "Traceback" not in done.stderr
    assert shlex.split(done.stderr.strip().splitlines()[-1])[2] == "resume=ranks"
    # the same command goes on, on as many devices
    other = run("train.py", *options, "seed=1", cwd=folder, expect=2)
    assert other.stderr.startswith("seed: ")
    other = run("train.py", *options, "trainer.devices=1", cwd=folder, expect=2)
    assert other.stderr.startswith("trainer.devices: ")
    run("train.py", *options, cwd=folder)
    assert state(folder / "ranks")["steps"] == 12
    assert "is finished" in run("train.py", *options, cwd=folder).stdout
