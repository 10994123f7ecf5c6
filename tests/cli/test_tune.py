from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from pcnn.cli.options import composed
from pcnn.experiment import networks
from pcnn.kernels.gemm_blocks import GemmBlocks
from pcnn.nn.conv import convolutions
from pcnn.ops.engine_settings import AutoSettings
from pcnn.runtime import tuning
from tests.cli.invoking import invoke
from tests.datasets.registration.training_sets import write_predator
from tests.experiment.command import REPOSITORY
from tests.experiment.tiny_kitti import write_tiny_kitti

TINY = ("model=minkunet", "model.width=0.125", "dataset=kitti", "dataset.voxel_size=0.4")


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """Overrides for a tiny data set; files that the command writes itself stay in tmp_path."""
    root = write_tiny_kitti(tmp_path / "kitti", {0: 2, 8: 2})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    own = f"dataset.root={root}", "dataset.train_sequences=[0]", "dataset.num_workers=0"
    return *TINY, *own, "trainer=cpu"


def run(*words: str, code: int = 0) -> str:
    return invoke("tune", *words, "--conf", REPOSITORY / "conf", "--device", "cpu", code=code)


def test_a_network_is_tuned(
    data: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tuning, "device_ms", lambda *_, **__: next(times))
    monkeypatch.setattr(AutoSettings, "candidates", lambda *_: iter([AutoSettings(GemmBlocks(64))]))
    times, out = itertools.count(1000, -20), tmp_path / "own.yaml"
    text = run(*data, "--samples", "1", "--out", str(out))
    assert "stem.0.conv: blocks=" in text
    written = OmegaConf.to_container(OmegaConf.load(out))
    assert isinstance(written, dict)
    assert all(one["blocks"]["rows"] == 64 for one in written.values())
    chosen = (*TINY, f"engine.layers={out}")
    cfg = composed(chosen, REPOSITORY / "conf")
    net = networks.network(cfg, 4, 19)
    for name, layer in convolutions(net).items():
        assert layer.engine.blocks == (GemmBlocks(64) if name in written else None), name


def test_a_network_of_pairs_is_tuned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_predator(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(AutoSettings, "candidates", lambda *_: iter([]))
    words = "model=resunet", "model.width=0.125", "dataset=threedmatch", "trainer=cpu"
    own = f"dataset.root={tmp_path}", "dataset.num_workers=0", "dataset.voxel_size=0.1"
    assert "no layer quicker" in run(*words, *own, "--samples", "1", "--backward")


def test_mistakes_are_named() -> None:
    assert "--conf" in invoke("tune", "model=minkunet", "--conf", "/nowhere", code=2)
    for word in ("model=nonsense", "model.widht=3", "engine=spira"):  # of which a CPU has none
        run(word, code=2)
    assert "engine=reference has none" in run("engine=reference", "--out", "x.yaml", code=2)
    run("engine=spira", "geometry=point", code=2)
