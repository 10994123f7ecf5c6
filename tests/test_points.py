"""train.py, eval.py and `pcnn predict` with geometry=point; weights that go to voxels and back."""

from __future__ import annotations

import importlib
import json
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from typer.testing import CliRunner

from pcnn.cli.commands import app
from pcnn.experiment.stored_options import with_stored_options
from pcnn.programs.command_line import short_errors
from tests.experiment.command import QUICK, REPOSITORY, TINY, run
from tests.experiment.tiny_kitti import write_tiny_kitti

CONF = REPOSITORY / "conf"
THIN = "geometry.thin=0.3"
OPTIONS = (*TINY, "dataset.root=kitti", "trainer.max_steps=32", "trainer.val_check_interval=32")


def call(folder: Path, program: str, *arguments: str) -> None:
    """Run train.py or eval.py in a folder, in this process: starting one takes seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        if program == "eval":
            arguments = tuple(with_stored_options(arguments, CONF))
        patch.setattr(sys, "argv", [f"{program}.py", *arguments])
        with short_errors():
            importlib.import_module(program).main()


def metrics(folder: Path) -> dict[str, float]:
    content: dict[str, float] = json.loads((folder / "metrics.json").read_text())["metrics"]
    return content


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data, and trainings on points and on voxels."""
    root = tmp_path_factory.mktemp("points")
    write_tiny_kitti(root / "kitti", {0: 4, 8: 2})
    call(root, "train", *OPTIONS, "geometry=point", THIN, "hydra.run.dir=point")
    call(root, "train", *OPTIONS, *QUICK, "geometry=voxel", "hydra.run.dir=voxel")
    return root


def checkpoint(name: str) -> str:
    return f"ckpt_path={name}/checkpoints/best.ckpt"


def test_it_learns(folder: Path) -> None:
    figures = metrics(folder / "point")
    assert figures["val/miou_present"] > figures["val/best_constant"] + 0.2
    content = json.loads((folder / "point" / "metrics.json").read_text())
    assert content["geometry"] == "point"
    assert OmegaConf.load(folder / "point" / "config.yaml").geometry.thin == 0.3
    losses = [
        float(row.split(",")[header.index("train/loss")])
        for path in (folder / "point").rglob("metrics.csv")
        for header, rows in [(path.read_text().splitlines()[0].split(","), path.read_text())]
        for row in rows.splitlines()[1:]
        if row.split(",")[header.index("train/loss")]
    ]
    assert len(losses) == 32
    assert np.mean(losses[-5:]) < 0.6 * np.mean(losses[:5])
    assert (folder / "point" / "predictions.png").stat().st_size > 0


def test_every_point_is_evaluated_and_predicted(folder: Path) -> None:
    """Also those that `thin` left out."""
    options = ["predictions=predicted", *QUICK, "hydra.run.dir=again"]
    call(folder, "eval", checkpoint("point"), *options)
    tested, trained = metrics(folder / "again"), metrics(folder / "point")
    for name, value in tested.items():
        assert value == pytest.approx(trained[name.replace("test/", "val/")], abs=1e-6), name
    right = total = 0
    for index in range(2):
        names = f"sequences/08/predictions/{index:06d}.label", f"sequences/08/labels/{index:06d}"
        predicted = np.fromfile(folder / "predicted" / names[0], "<u4")
        truth = np.fromfile(folder / "kitti" / f"{names[1]}.label", "<u4")
        assert predicted.shape == truth.shape
        assert (predicted != 0).all()
        right, total = right + (predicted == truth).sum(), total + truth.size
    assert total == 600
    assert right / total == pytest.approx(tested["test/accuracy"], abs=1e-6)
    cloud = "kitti/sequences/08/velodyne/000001.bin"
    arguments = ["point/checkpoints/best.ckpt", cloud, "--out", "labels", "--device", "cpu"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        done = CliRunner().invoke(app, ["predict", *arguments])
    assert done.exit_code == 0, done.output
    single = np.fromfile(folder / "labels" / "000001.label", "<u4")
    assert (single == predicted).all()


@pytest.mark.parametrize(("trained", "other"), [("point", "voxel"), ("voxel", "point")])
def test_weights_serve_the_other_geometry(folder: Path, trained: str, other: str) -> None:
    run_dir = f"{trained}_on_{other}"
    options = [f"geometry={other}", "engine=reference", *QUICK, f"hydra.run.dir={run_dir}"]
    call(folder, "eval", checkpoint(trained), *options)
    content = json.loads((folder / run_dir / "metrics.json").read_text())
    assert (content["geometry"], content["engine"]) == (other, "reference")
    figures = content["metrics"]
    assert figures["test/miou_present"] > figures["test/best_constant"] + 0.1
    assert figures["test/loss"] != metrics(folder / trained)["val/loss"]


def test_points_at_cell_corners_give_the_figures_of_voxels(folder: Path) -> None:
    """Where a cell holds one point; the checkpoint is one of a version that knew no points."""
    kept = folder / "sparse" / "sequences" / "08"
    for name in ("velodyne", "labels"):
        (kept / name).mkdir(parents=True, exist_ok=True)
    cloud = np.fromfile(folder / "kitti/sequences/08/velodyne/000000.bin", "<f4").reshape(-1, 4)
    labels = np.fromfile(folder / "kitti/sequences/08/labels/000000.label", "<u4")
    cells = np.floor(cloud[:, :3].astype(np.float64) / 0.4)
    rows = np.unique(cells, axis=0, return_index=True)[1]
    cloud[rows].tofile(kept / "velodyne" / "000000.bin")
    labels[rows].tofile(kept / "labels" / "000000.label")
    saved = torch.load(folder / "voxel/checkpoints/best.ckpt", weights_only=True)
    saved["pcnn_config"]["model"]["geometries"] = ["voxel"]
    torch.save(saved, folder / "earlier.ckpt")
    own = ["ckpt_path=earlier.ckpt", "dataset.root=sparse", "logger=[]", *QUICK]
    call(folder, "eval", *own, "hydra.run.dir=on_voxels")
    corners = ["geometry=point", "geometry.sites=cell_origin"]
    call(folder, "eval", *own, *corners, "hydra.run.dir=on_corners")
    expected, got = metrics(folder / "on_voxels"), metrics(folder / "on_corners")
    for name, value in expected.items():
        assert got[name] == pytest.approx(value, abs=1e-5, nan_ok=True), name
    call(folder, "eval", *own, "geometry=point", "hydra.run.dir=on_points")
    assert metrics(folder / "on_points")["test/loss"] != expected["test/loss"]


def test_a_resumed_run_ends_as_an_uninterrupted_one(folder: Path) -> None:
    options = [*TINY, *QUICK, "dataset.root=kitti", "geometry=point", "geometry.volume=1.5"]
    options += ["callbacks.checkpoint.checkpoint_every=2", "trainer.val_check_interval=4"]
    options += ["trainer.max_steps=4"]
    call(folder, "train", *options, "hydra.run.dir=straight")
    kill = "+callbacks.kill={_target_:tests.experiment.kill.KillOnce,step:3,marker:killed.x}"
    allow = "allow_targets=[tests.experiment.kill]"
    run("train.py", *options, kill, allow, "hydra.run.dir=cut", cwd=folder, expect=-signal.SIGKILL)
    call(folder, "train", "resume=cut", allow)
    states = [
        torch.load(folder / name / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
        for name in ("straight", "cut")
    ]
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])
