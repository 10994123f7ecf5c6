"""A network is trained on pairs, evaluated on both geometries, exported, and used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from pcnn.checkpoints.checkpoint_file import read_checkpoint
from pcnn.cli.commands import app
from pcnn.experiment.descriptors import of_checkpoint
from tests.datasets.registration.scenes import fragments, write_benchmark
from tests.datasets.registration.training_sets import write_predator
from tests.experiment.command import run

TINY = (
    "model.width=0.125",
    "model.first_kernel=3",
    "dataset.root=set",
    "dataset.voxel_size=0.1",
    "dataset.batch_size=2",
    "dataset.num_workers=0",
    "task.val_hypotheses=100",
    "task.hypotheses=500",
    "task.samples=[200,0]",
    "trainer=cpu",
    "trainer.max_steps=4",
    "trainer.val_check_interval=2",
    "trainer.log_every_n_steps=1",
    "logger=[wandb,csv]",
)
BEST = "one/checkpoints/best.ckpt"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data and a training of four steps on voxels in `one`, tested too."""
    root = tmp_path_factory.mktemp("registration")
    write_predator(root / "set")
    scene = root / "set" / "indoor" / "test" / "scene"
    write_benchmark(scene)
    options = ("model=resunet", "dataset=threedmatch", *TINY, "test=true")
    options = (*options, "hydra.run.dir=one")
    done = run("train.py", *options, cwd=root)
    (root / "said.txt").write_text(done.stdout)
    return root


def written(path: Path) -> dict:
    return json.loads((path / "metrics.json").read_text())


def test_a_training_leaves_everything(folder: Path) -> None:
    content = written(folder / "one")
    assert (content["task"], content["source"]) == ("registration", "real")
    best = torch.load(folder / BEST, weights_only=True)
    assert content["steps"] == best["global_step"]
    named = {"val/feat_match_ratio", "val/inlier_ratio", "val/rr", "test/rr@200"}
    assert named <= set(content["metrics"])
    assert content["sampling"] == "random_points"
    assert (content["protocol"], content["pairs"]) == ("predator, changed", 3)
    names = {path.relative_to(folder / "one").as_posix() for path in (folder / "one").rglob("*")}
    assert {BEST[4:], "predictions.png", "pairs.csv"} <= names
    media = [name for name in names if "/media/" in name]
    assert any("val/pair" in name for name in media)
    said = (folder / "said.txt").read_text()
    for words in ("FMR", "next:", "resunet 0.1 m, voxel"):
        assert words in said, words
    saved = best["pcnn_config"]
    assert saved["callbacks"]["checkpoint"]["monitor"] == "val/feat_match_ratio"


def test_exported_weights_describe_as_the_checkpoint(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.safetensors"
    done = CliRunner().invoke(app, ["export", str(folder / BEST), str(out)])
    assert done.exit_code == 0, done.output
    assert "task: registration" in done.output
    held = read_checkpoint(out)
    assert held["pcnn_export"]["steps"] == written(folder / "one")["steps"]
    assert held["pcnn_config"]["dataset"]["root"] is None
    assert str(folder) not in str(held["pcnn_config"])
    assert held["state_dict"]["net.final.weight"].dtype == torch.float16
    assert 3 * out.stat().st_size < (folder / BEST).stat().st_size
    cloud = fragments()[0][0].float()
    first, second = (of_checkpoint(path)([cloud])[0] for path in (folder / BEST, out))
    torch.testing.assert_close(first.features, second.features, atol=0.02, rtol=0)
