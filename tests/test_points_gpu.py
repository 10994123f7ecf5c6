"""train.py on native points of a GPU: batches are moved and planned on a side stream."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tests.experiment.command import TINY
from tests.experiment.tiny_kitti import write_tiny_kitti
from tests.test_points import QUICK, call, metrics

pytestmark = [pytest.mark.gpu, pytest.mark.long]

OPTIONS = (*TINY, *QUICK, "dataset.root=kitti", "geometry=point", "trainer.accelerator=gpu")


@pytest.mark.parametrize("engine", ["auto", "pointcnnpp"])
@pytest.mark.parametrize("precision", ["32-true", "16-mixed"])
def test_training_and_its_figures_on_a_cpu(tmp_path: Path, engine: str, precision: str) -> None:
    write_tiny_kitti(tmp_path / "kitti", {0: 4, 8: 2})
    own = [f"engine={engine}", f"trainer.precision={precision}", "geometry.thin=0.2"]
    call(tmp_path, "train", *OPTIONS, *own, "hydra.run.dir=one")
    trained = metrics(tmp_path / "one")
    assert all(math.isfinite(trained[name]) for name in ("val/loss", "val/miou"))
    checkpoint = "ckpt_path=one/checkpoints/best.ckpt"
    on_cpu = ["trainer=cpu", "trainer.precision=32-true", "hydra.run.dir=cpu"]
    call(tmp_path, "eval", checkpoint, *QUICK, *on_cpu)
    wide = 2e-2 if precision == "16-mixed" else 1e-3
    assert metrics(tmp_path / "cpu")["test/loss"] == pytest.approx(trained["val/loss"], rel=wide)


def test_prefetching_changes_nothing(tmp_path: Path) -> None:
    write_tiny_kitti(tmp_path / "kitti", {0: 4, 8: 2})
    own = ["engine.deterministic=true"]
    for fetch in ("true", "false"):
        run = [f"task.prefetch_maps={fetch}", f"hydra.run.dir=fetch_{fetch}"]
        call(tmp_path, "train", *OPTIONS, *own, *run)
    with_it, without = (metrics(tmp_path / f"fetch_{fetch}") for fetch in ("true", "false"))
    assert with_it["val/loss"] == pytest.approx(without["val/loss"], rel=1e-4)
