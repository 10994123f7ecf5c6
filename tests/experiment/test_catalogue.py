"""Weights by name: the catalogue, and tensors."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import pcnn
from pcnn.checkpoints.checkpoint_file import RunCheckpoint
from pcnn.errors import FileError
from pcnn.files.tensors import read_tensors, write_tensors
from tests.cli.test_predict import saved


def test_networks_by_name(tmp_path: Path) -> None:
    names = pcnn.models.available()
    assert set(names) >= {"reg_rooms", "reg_streets", "seg_rooms", "seg_streets"}
    net = pcnn.models.load("reg_streets")
    x = pcnn.voxelize(torch.rand(90, 3), torch.ones(90, 1), voxel_size=0.3)
    assert net(x).features.shape[1] == 32
    assert not net.training
    net = pcnn.models.load(saved(tmp_path / "a.ckpt", "kitti"))
    assert type(net).__name__ == "MinkUNet"
    with pytest.raises(FileNotFoundError, match="reg_streets"):
        pcnn.models.load("street")


def test_tensors_come_back_bit_for_bit_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    tensors = {
        "half": torch.randn(3, 5).half(),
        "bfloat": torch.randn(4).bfloat16(),
        "count": torch.tensor(7),
        "none": torch.empty(0, 3),
        "turned": torch.randn(4, 6).T,
    }
    write_tensors(path, tensors, {"a": "ü\n"})
    found, words = read_tensors(path)
    assert words == {"a": "ü\n", "format": "pt"}
    for name, value in tensors.items():
        assert found[name].dtype == value.dtype
        assert torch.equal(found[name], value)
    whole = path.read_bytes()
    for place in (3, 12, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        with pytest.raises(FileError):
            read_tensors(path)
    path.write_bytes(whole[:-3])
    with pytest.raises(FileError, match="not a whole safetensors file"):
        read_tensors(path)
    write_tensors(path, tensors, {})
    with pytest.raises(FileError, match="without a description"):
        RunCheckpoint.read(path)
