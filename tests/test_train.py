"""train.py and eval.py from data to metrics, as a user runs them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf

from tests.experiment.command import QUICK, TINY, TWO_PROCESSES, run
from tests.experiment.tiny_kitti import write_tiny_kitti

CKPT = "ckpt_path=logs/segmentation/one/checkpoints/best.ckpt"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data and a training of 40 steps in logs/segmentation/one."""
    root = tmp_path_factory.mktemp("train")
    write_tiny_kitti(root / "kitti", {0: 4, 8: 3})
    options = [*TINY, "dataset.root=kitti", "trainer.max_steps=40", "trainer.val_check_interval=20"]
    done = run("train.py", *options, "hydra.run.dir=logs/segmentation/one", cwd=root)
    (root / "said.txt").write_text(done.stdout)
    return root


def metrics(path: Path) -> dict[str, float]:
    content: dict[str, float] = json.loads((path / "metrics.json").read_text())["metrics"]
    return content


def test_a_run_learns_and_says_where_its_results_are(folder: Path) -> None:
    one = folder / "logs" / "segmentation" / "one"
    content = json.loads((one / "metrics.json").read_text())
    best = torch.load(one / "checkpoints" / "best.ckpt", weights_only=True)
    assert content["steps"] == best["global_step"]  # of what was measured, not of the last state
    assert content["versions"].keys() >= {"python", "torch", "pcnn"}
    assert (content["source"], content["test_split"]) == ("real", "validation")
    assert (one / "predictions.png").stat().st_size > 0
    assert not list(one.rglob("*.part"))
    figures = metrics(one)
    assert figures["val/miou_present"] > figures["val/best_constant"] + 0.2
    assert figures["val/miou"] < figures["val/miou_present"]  # absent classes count 0 there
    said = (folder / "said.txt").read_text()
    for word in ("metrics.json", "next:", "pcnn eval"):
        assert word in said
    assert "IoU per class, kitti val" in said
    assert "SIMULATED" not in said
    saved = OmegaConf.load(one / "config.yaml")
    assert (saved.model.width, saved.data.source) == (0.125, "real")


def test_eval_repeats_the_figures(folder: Path) -> None:
    options = "dataset.crop=null", "trainer=cpu", *QUICK, "hydra.run.dir=evaluated"
    done = run("eval.py", CKPT, *options, cwd=folder)
    assert "traffic-sign" in done.stdout  # the table
    trained, tested = metrics(folder / "logs/segmentation/one"), metrics(folder / "evaluated")
    for name, value in tested.items():
        assert value == pytest.approx(trained[name.replace("test/", "val/")], abs=1e-6), name


def test_run_folder_is_not_used_twice(folder: Path) -> None:
    options = [*TINY, "dataset.root=kitti", "hydra.run.dir=logs/segmentation/one"]
    done = run("train.py", *options, cwd=folder, expect=2)
    assert "resume=logs/segmentation/one" in done.stderr


# ends between two validations
BETWEEN = (
    *(*TINY, *QUICK, "dataset.root=kitti", "trainer.max_steps=5", "trainer.val_check_interval=3"),
    *("callbacks.checkpoint.monitor=val/loss", "callbacks.checkpoint.mode=min"),
)


@pytest.fixture(scope="module")
def sweep(folder: Path) -> Path:
    """Two jobs one after the other, each of two processes: the second starts ranks of its own."""
    options = ("seed=1,2", *TWO_PROCESSES, "callbacks=plain", "test=true")
    place = "hydra.sweep.dir=sweep"
    # the flag first: argparse wants it so
    run("train.py", "-m", *BETWEEN, *options, place, cwd=folder)
    return folder / "sweep"


def test_two_processes_give_exact_metrics(sweep: Path, folder: Path) -> None:
    """3 validation scans on 2 ranks: none is counted twice."""
    alone = [f"ckpt_path={sweep}/0/checkpoints/best.ckpt", *QUICK, "hydra.run.dir=alone"]
    run("eval.py", *alone, "trainer=cpu", cwd=folder)
    figures = metrics(sweep / "0")
    for name, value in metrics(folder / "alone").items():
        assert value == pytest.approx(figures[name], abs=1e-6), name


def test_sweep_makes_one_run_after_the_other(sweep: Path, folder: Path) -> None:
    assert [path.name for path in folder.glob("logs/*/*")] == ["one"]  # ranks share a job's folder
    runs = [json.loads((sweep / f"{job}/metrics.json").read_text()) for job in (0, 1)]
    assert [content["seed"] for content in runs] == [1, 2]
    assert runs[0]["metrics"]["val/loss"] != runs[1]["metrics"]["val/loss"]


def test_simulated_run_says_so_everywhere(tmp_path: Path) -> None:
    done = run(
        "train.py",
        *(option for option in (*TINY, *QUICK) if "train_sequences" not in option),
        "dataset.simulate.train_scans=1",
        "dataset.simulate.val_scans=1",
        "dataset.crop=8",
        "trainer.max_steps=2",
        "trainer.val_check_interval=2",
        "hydra.run.dir=one",
        cwd=tmp_path,
    )
    assert json.loads((tmp_path / "one" / "metrics.json").read_text())["source"] == "simulated"
    assert done.stdout.count("SIMULATED") >= 2  # at the beginning and at the end
    cfg = OmegaConf.load(tmp_path / "one" / "config.yaml")
    assert list(cfg.tags) == ["simulated"]
    # evaluating it elsewhere is tagged too
    best = "ckpt_path=one/checkpoints/best.ckpt"
    run("eval.py", best, *QUICK, "hydra.run.dir=two", cwd=tmp_path)
    assert json.loads((tmp_path / "two" / "metrics.json").read_text())["source"] == "simulated"
