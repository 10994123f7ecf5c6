from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf

from pcnn.cli.options import composed
from pcnn.cli.tune import launches_of_training
from pcnn.experiment import networks
from pcnn.kernels.gemm_blocks import GemmBlocks
from pcnn.nn.conv import convolutions
from pcnn.ops.engine_settings import AutoSettings
from pcnn.runtime import tuning
from tests.cli.invoking import invoke
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
    monkeypatch.setattr(tuning, "device_ms", lambda *_: next(times))
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


def test_mistakes_are_named() -> None:
    assert "--conf" in invoke("tune", "model=minkunet", "--conf", "/nowhere", code=2)
    for word in ("model=nonsense", "model.widht=3", "engine=spira"):  # of which a CPU has none
        run(word, code=2)
    assert "engine=reference has none" in run("engine=reference", "--out", "x.yaml", code=2)
    run("engine=spira", "geometry=point", code=2)
    assert "nothing to compile" in run("seg_streets", "--compile-only", code=2)


@pytest.mark.parametrize(
    ("experiment", "inputs"),
    [("seg_streets", 4), ("rooms_resnet18_quick", 6), ("threedmatch_fcgf_quick", 1)],
)
def test_an_experiment_names_its_kernels_without_data(
    experiment: str, inputs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")
    from pcnn.dataflows import gemm
    from pcnn.ops import engine

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(gemm, "kernels_serve", lambda x, dtype: True)
    usual = gemm.OutputStationary()
    monkeypatch.setattr(engine, "usual_dataflow", lambda *_: usual)
    cfg = composed([experiment, "geometry=voxel", "model.width=0.25"], REPOSITORY / "conf")
    launches = launches_of_training(cfg, torch.device("cpu"), "bf16-mixed", (300, 600))
    assert not any(tmp_path.iterdir())  # nothing is simulated or cached
    products = [one for one in launches if one.kernel.__name__ == "gather_gemm"]
    assert {one.arguments[0] for one in products} == {torch.bfloat16}
    assert inputs in {one.arguments[15] for one in products}  # channels of the first layer
    assert any(one.arguments[10] is not None for one in products)  # scales of a folded norm
    assert any(one.kernel.__name__ == "outer_products_kernel" for one in launches)
