"""Weights by name: the catalogue, tensors, and the hub."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import pcnn
from pcnn.checkpoints.checkpoint_file import RunCheckpoint
from pcnn.checkpoints.exported_file import write_exported
from pcnn.errors import FileError, UserError
from pcnn.files.tensors import read_tensors, write_tensors
from tests.cli.test_predict import saved


def test_networks_by_name(tmp_path: Path) -> None:
    names = pcnn.models.available()
    assert set(names) >= {"resunet_interiors_point", "resunet_streets_voxel"}
    net = pcnn.models.load("resunet_streets_voxel")
    x = pcnn.voxelize(torch.rand(90, 3), torch.ones(90, 1), voxel_size=0.3)
    assert net(x).features.shape[1] == 32
    assert not net.training
    net = pcnn.models.load(saved(tmp_path / "a.ckpt", "kitti"))
    assert type(net).__name__ == "MinkUNet"
    for name in {"streets", "rooms"} - set(names):
        with pytest.raises(FileNotFoundError, match=f"experiment={name}_minkunet_quick"):
            pcnn.models.load(name)
    with pytest.raises(FileNotFoundError, match="resunet_streets_voxel"):
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


def test_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Held to a stand-in with the signatures of huggingface_hub."""
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ImportError, match=r"pip install 'pcnn3d\[hub\]'"):
        pcnn.models.from_hub("me/streets")
    made = tmp_path / "hub"

    def create_repo(repo_id: str, *, token: Any, private: bool, exist_ok: bool) -> None:
        assert exist_ok
        if token != "mine":
            raise RuntimeError("401 Client Error:\n Unauthorized")
        (made / repo_id).mkdir(parents=True)

    def upload_folder(
        *, repo_id: str, folder_path: str, commit_message: str, token: Any
    ) -> SimpleNamespace:
        for path in Path(folder_path).iterdir():
            path.rename(made / repo_id / path.name)
        return SimpleNamespace(commit_url=f"https://hub/{repo_id}/commit/1")

    def hf_hub_download(repo_id: str, filename: str, *, revision: Any, token: Any) -> str:
        return str(made / repo_id / filename)

    stub = SimpleNamespace(
        create_repo=create_repo, upload_folder=upload_folder, hf_hub_download=hf_hub_download
    )
    monkeypatch.setitem(sys.modules, "huggingface_hub", stub)
    source = saved(tmp_path / "a.ckpt", "kitti", **{"root": "/a/place/of/mine"})
    content = torch.load(source, weights_only=True)
    content["pcnn_config"] |= {"seed": 0, "geometry": {"name": "voxel"}}
    write_exported(tmp_path / "a.safetensors", {**content, "global_step": 5})
    source = tmp_path / "a.safetensors"
    with pytest.raises(UserError, match="me/streets: 401 Client Error: Unauthorized"):
        pcnn.models.push_to_hub(source, "me/streets", licence="mit", token="yours")
    url = pcnn.models.push_to_hub(
        source, "me/streets", licence="mit", card="For trams.", token="mine"
    )
    assert url == "https://hub/me/streets/commit/1"
    card = (made / "me/streets/README.md").read_text()
    assert "license: mit" in card
    assert "For trams." in card
    fetched = pcnn.models.from_hub("me/streets")
    assert b"/a/place" not in fetched.read_bytes()
    assert type(pcnn.models.load(fetched)).__name__ == "MinkUNet"
    fetched.write_bytes(fetched.read_bytes()[:-9])
    with pytest.raises(FileError, match="not a whole"):
        pcnn.models.from_hub("me/streets")
