"""Exported networks in 8 bits are half as large, and load, describe and predict as before."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import pcnn
from pcnn.checkpoints import RunCheckpoint
from pcnn.experiment.export import export
from pcnn.experiment.predictor import Predictor
from pcnn.files.tensors import read_tensors
from tests.cli.invoking import invoke
from tests.cli.test_predict import saved


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    path = saved(tmp_path / "a.ckpt", "kitti")
    content = torch.load(path, weights_only=True)
    content["pcnn_config"]["seed"] = 0
    torch.save({**content, "global_step": 5}, path)
    return path


def test_a_network_in_eight_bits(checkpoint: Path, tmp_path: Path) -> None:
    half, eight = tmp_path / "half.safetensors", tmp_path / "eight.safetensors"
    assert "bits: 16" in invoke("export", checkpoint, half)
    assert "bits: 8" in invoke("export", checkpoint, eight, "--bits", "8")
    tensors, _ = read_tensors(eight)
    held, given, found = (RunCheckpoint.read(path).weights for path in (half, checkpoint, eight))
    for name, value in given.items():
        if value.is_floating_point() and value.ndim > 1:
            assert tensors[name].dtype == torch.int8
        else:
            assert torch.equal(found[name], value)
            assert torch.equal(found[name], held[name])
    assert found.keys() == given.keys()
    assert eight.stat().st_size < 0.7 * half.stat().st_size
    facts = [RunCheckpoint.read(path).content["pcnn_export"] for path in (half, eight)]
    assert facts[0] | {"name": "eight", "bits": 8} == facts[1]
    # and it is a network like any other
    points = torch.rand(300, 3, generator=torch.Generator().manual_seed(0)) * 4
    x = pcnn.voxelize(points, torch.ones(300, 4), voxel_size=0.5)
    with torch.no_grad():
        first, second = (
            pcnn.models.load(path)(x).features.double() for path in (checkpoint, eight)
        )
    assert not torch.equal(first, second)
    assert float((first - second).norm() / first.norm()) < 0.05
    assert Predictor.load(eight, torch.device("cpu")).class_names
    # exported once more, it keeps its numbers
    export(eight, tmp_path / "again.safetensors", bits=8)
    again, _ = read_tensors(tmp_path / "again.safetensors")
    assert all(torch.equal(again[n], v) for n, v in tensors.items() if v.dtype == torch.int8)
    export(eight, tmp_path / "back.safetensors")
    back = RunCheckpoint.read(tmp_path / "back.safetensors").weights
    assert all(torch.equal(back[n], v.half() if v.ndim > 1 else v) for n, v in found.items())


def test_weights_beyond_their_format_are_named(checkpoint: Path, tmp_path: Path) -> None:
    content = torch.load(checkpoint, weights_only=True)
    name = next(n for n, v in content["state_dict"].items() if n[:4] == "net." and v.ndim > 1)
    weight = content["state_dict"][name] = content["state_dict"][name].clone()
    weight.view(-1)[0] = 1e6  # float16 ends before, the scales of 8 bits do not
    torch.save(content, checkpoint)
    with pytest.raises(ValueError, match="too large for float16"):
        export(checkpoint, tmp_path / "out.safetensors")
    export(checkpoint, tmp_path / "out.safetensors", bits=8)
    found = RunCheckpoint.read(tmp_path / "out.safetensors").weights[name.removeprefix("net.")]
    assert float(found.view(-1)[0]) == pytest.approx(1e6)
    weight.view(-1)[0] = float("nan")
    torch.save(content, checkpoint)
    with pytest.raises(ValueError, match="holds NaN or infinite numbers"):
        export(checkpoint, tmp_path / "nan.safetensors", bits=8)
    assert not (tmp_path / "nan.safetensors").exists()
