"""Kernels of an experiment compiled ahead, without its data; no GPU."""

from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

pytest.importorskip("triton")

from pcnn.cli.commands import app
from pcnn.cli.composed import composed
from pcnn.cli.warmup import launches_of_training
from pcnn.dataflows import outer_products, output_stationary
from pcnn.dataflows.output_stationary import OutputStationary
from pcnn.ops import engine
from tests.experiment.command import REPOSITORY

CONF = REPOSITORY / "conf"


@pytest.mark.parametrize(
    ("experiment", "inputs"),
    [("streets_minkunet_quick", 4), ("rooms_resnet18_quick", 6), ("threedmatch_fcgf_quick", 1)],
)
def test_an_experiment_names_its_kernels_without_data(
    experiment: str, inputs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for module in (outer_products, output_stationary):
        monkeypatch.setattr(module, "kernels_serve", lambda x, dtype: True)
    monkeypatch.setattr(engine, "usual_dataflow", lambda *_: OutputStationary())
    options = [f"experiment={experiment}", "geometry=voxel", "model.width=0.25"]
    cfg = composed([*options, "trainer.precision=bf16-mixed"], CONF)
    launches = launches_of_training(cfg, torch.device("cpu"), (300, 600))
    assert not any(tmp_path.iterdir())  # nothing is downloaded, simulated or cached
    products = [one for one in launches if one.kernel.__name__ == "implicit_gemm"]
    assert {one.arguments[0] for one in products} == {torch.bfloat16}
    assert inputs in {one.arguments[12] for one in products}  # channels of the first layer
    assert any(one.arguments[7] is not None for one in products)  # scales of a folded norm
    assert any(one.kernel.__name__ == "outer_products_kernel" for one in launches)


def test_without_a_gpu_there_is_nothing_to_compile() -> None:
    words = ["warmup", "streets_minkunet_quick", "--device", "cpu", "--conf", str(CONF)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 2
    assert "torch sees none here" in done.output
