"""train.py, eval.py and `pcnn predict` with geometry=point; weights that go to voxels and back."""

from __future__ import annotations

import importlib
import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from pcnn.cli.commands import app
from pcnn.experiment.stored_options import with_stored_options
from pcnn.programs.command_line import short_errors
from tests.experiment.command import QUICK, REPOSITORY, TINY
from tests.experiment.tiny_kitti import write_tiny_kitti

OPTIONS = (*TINY, "dataset.root=kitti")
LONG = ("trainer.max_steps=32", "trainer.val_check_interval=32")


def call(folder: Path, program: str, *arguments: str) -> Any:
    """Run train.py or eval.py in a folder, in this process; what it wrote."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        if program == "eval":
            arguments = tuple(with_stored_options(arguments, REPOSITORY / "conf"))
        patch.setattr(sys, "argv", [f"{program}.py", *arguments])
        with short_errors():
            importlib.import_module(program).main()
    place = next(
        word.split("=")[1] for word in arguments if word.startswith(("hydra.run.dir", "r"))
    )
    return json.loads((folder / place / "metrics.json").read_text())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data, and trainings on points and on voxels."""
    root = tmp_path_factory.mktemp("points")
    write_tiny_kitti(root / "kitti", {0: 4, 8: 2})
    own = "geometry=point", "geometry.thin=0.3"
    call(root, "train", *OPTIONS, *LONG, *own, "hydra.run.dir=point")
    call(root, "train", *OPTIONS, *LONG, *QUICK, "geometry=voxel", "hydra.run.dir=voxel")
    return root


def metrics(path: Path) -> dict[str, float]:
    content: dict[str, float] = json.loads((path / "metrics.json").read_text())["metrics"]
    return content


def checkpoint(name: str) -> str:
    return f"ckpt_path={name}/checkpoints/best.ckpt"


def test_every_point_is_learnt_evaluated_and_predicted(folder: Path) -> None:
    """Also those that `thin` left out."""
    tested = call(folder, "eval", checkpoint("point"), *QUICK, "hydra.run.dir=again")["metrics"]
    trained = metrics(folder / "point")
    assert trained["val/miou_present"] > trained["val/best_constant"] + 0.2
    for name, value in tested.items():
        assert value == pytest.approx(trained[name.replace("test/", "val/")], abs=1e-6), name
    scans, out = folder / "kitti/sequences/08", folder / "submission"
    words = ["predict", folder / "point/checkpoints/best.ckpt", scans / "velodyne", "--out", out]
    done = CliRunner().invoke(app, [*map(str, words), "--device=cpu", "--no-ply", "--no-view"])
    assert done.exit_code == 0, done.output
    right = total = 0
    for index in range(2):
        predicted = np.fromfile(out / f"{index:06d}.label", "<u4")
        truth = np.fromfile(scans / "labels" / f"{index:06d}.label", "<u4")
        assert predicted.shape == truth.shape
        assert (predicted != 0).all()
        right, total = right + (predicted == truth).sum(), total + truth.size
    assert total == 600
    assert right / total == pytest.approx(tested["test/accuracy"], abs=1e-6)


@pytest.mark.parametrize(("trained", "other"), [("point", "voxel"), ("voxel", "point")])
def test_weights_serve_the_other_geometry(folder: Path, trained: str, other: str) -> None:
    options = [f"geometry={other}", "engine=reference", *QUICK, f"hydra.run.dir=on_{other}"]
    content = call(folder, "eval", checkpoint(trained), *options)
    assert (content["geometry"], content["engine"]) == (other, "reference")
    figures = content["metrics"]
    assert figures["test/miou_present"] > figures["test/best_constant"] + 0.1
    assert figures["test/loss"] != metrics(folder / trained)["val/loss"]


@pytest.mark.gpu
@pytest.mark.long
@pytest.mark.parametrize("engine", ["auto", "pointcnnpp"])
@pytest.mark.parametrize("precision", ["32-true", "16-mixed"])
def test_training_on_a_gpu_and_its_figures_on_a_cpu(
    tmp_path: Path, engine: str, precision: str
) -> None:
    """Batches are moved and planned on a side stream, or not: that changes nothing."""
    write_tiny_kitti(tmp_path / "kitti", {0: 4, 8: 2})
    options = [*OPTIONS, *QUICK, "geometry=point", "geometry.thin=0.2", f"engine={engine}"]
    options += ["trainer.accelerator=gpu", f"trainer.precision={precision}"]
    trained = call(tmp_path, "train", *options, "hydra.run.dir=one")["metrics"]
    assert all(math.isfinite(trained[name]) for name in ("val/loss", "val/miou"))
    on_cpu = ["trainer=cpu", "trainer.precision=32-true", "hydra.run.dir=cpu"]
    tested = call(tmp_path, "eval", checkpoint("one"), *QUICK, *on_cpu)["metrics"]
    wide = 2e-2 if precision == "16-mixed" else 1e-3
    assert tested["test/loss"] == pytest.approx(trained["val/loss"], rel=wide)
    if (engine, precision) == ("auto", "32-true"):
        options += ["engine.deterministic=true"]
        losses = [
            call(tmp_path, "train", *options, f"task.prefetch_maps={fetch}", f"hydra.run.dir={n}")
            for n, fetch in enumerate(("true", "false"))
        ]
        with_it, without = (one["metrics"]["val/loss"] for one in losses)
        assert with_it == pytest.approx(without, rel=1e-4)
