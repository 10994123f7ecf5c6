"""Weights by name: the catalogue, transfers that break off, and the hub."""

from __future__ import annotations

import hashlib
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import pcnn
from pcnn.checkpoints.checkpoint_file import RunCheckpoint
from pcnn.checkpoints.exported_file import write_exported
from pcnn.errors import FileError, StorageError, UserError
from pcnn.experiment import catalogue
from pcnn.experiment.catalogue import Weights
from pcnn.experiment.download import DownloadError, download
from pcnn.files.tensors import read_tensors, write_tensors
from tests.cli.invoking import invoke
from tests.cli.test_predict import saved

CONTENT = bytes(range(256)) * 4096  # 1 MiB


@dataclass
class Server:
    """Serves CONTENT; closes the connection after so many bytes of an answer, once each."""

    url: str = ""
    content: bytes = CONTENT
    cuts: list[int] = field(default_factory=list)
    ranges: bool = True
    asked: list[str | None] = field(default_factory=list)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = self.headers.get("Range") if state.ranges else None
            state.asked.append(self.headers.get("Range"))
            start = int(asked.removeprefix("bytes=").partition("-")[0]) if asked else 0
            if start >= len(state.content) > 0 and asked:
                self.send_error(416)
                return
            body = state.content[start:]
            self.send_response(206 if asked else 200)
            if asked:
                size = len(state.content)
                self.send_header("Content-Range", f"bytes {start}-{size - 1}/{size}")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: state.cuts.pop(0)] if state.cuts else body)

        def log_message(self, *args: Any) -> None: ...

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=httpd.serve_forever, args=(0.02,), daemon=True).start()
    state.url = f"http://127.0.0.1:{httpd.server_port}/a.safetensors"
    yield state
    httpd.shutdown()
    httpd.server_close()


def entry(url: str | None, content: bytes = CONTENT) -> Weights:
    digest = hashlib.sha256(content).hexdigest()
    facts = ("Apache-2.0", "simulated", "a test", ("a", "b"))
    return Weights("big", "2", "segmentation", digest, len(content), *facts, url)


def kept(weights: Weights) -> Path:
    return weights.cached.with_name(f".{weights.cached.name}.part")


def test_a_transfer_goes_on_where_it_broke_off(server: Server) -> None:
    weights, seen = entry(server.url), []
    server.cuts = [100_000, 0, 300_000, 200_000]  # within one call, three times
    with pytest.raises(DownloadError, match=r"broke off after 400000 of 1048576 bytes.*\n.*goes"):
        download(weights)
    assert kept(weights).stat().st_size == 400_000
    path = download(weights, seen.append)  # cut once more
    assert path == weights.cached
    assert path.read_bytes() == CONTENT
    assert server.asked == [None, *(f"bytes={n}-" for n in (100_000, 100_000, 400_000, 600_000))]
    assert seen[-1] == len(CONTENT)
    assert download(weights) == path  # nothing is asked
    assert len(server.asked) == 5
    assert not kept(weights).exists()


def test_servers_of_other_habits(server: Server) -> None:
    weights = entry(server.url)
    server.ranges, server.cuts = False, [70_000]  # sends all of it again
    assert download(weights).read_bytes() == CONTENT
    weights.cached.unlink()
    server.ranges, server.content = True, CONTENT[:1000]  # what is kept is longer than its file
    kept(weights).write_bytes(CONTENT[:5000])
    with pytest.raises(DownloadError, match="broke off after 0 of"):
        download(weights)
    server.content = CONTENT + b"more"
    with pytest.raises(FileError, match="larger than the 1048576 bytes"):
        download(weights)
    with pytest.raises(DownloadError, match="no URL of a server, found None"):
        download(entry(None))
    with pytest.raises(DownloadError, match="file://"):
        download(entry("file:///etc/passwd"))
    with pytest.raises(DownloadError, match="refused"):
        download(entry("http://127.0.0.1:9/a"))


def test_another_file_is_not_kept(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = entry(server.url)
    server.content = CONTENT[:-1] + b"?"
    with pytest.raises(FileError, match="not the one of the catalogue") as refused:
        download(weights)
    assert server.url in str(refused.value)
    assert not kept(weights).exists()
    assert not weights.cached.exists()
    kept(weights).symlink_to("/dev/full")
    with pytest.raises(StorageError, match="the disk is full"):
        download(weights)
    kept(weights).unlink()
    # by the command, from the catalogue
    server.content = CONTENT
    monkeypatch.setattr(catalogue, "catalogue", lambda folder=None: {"big": weights})
    assert "pcnn download big" in invoke("download")
    with pytest.raises(FileNotFoundError, match=r"pcnn download big \(1 MB\)"):
        catalogue.weights_file("big")
    assert str(weights.cached) in invoke("download", "big")
    assert catalogue.weights_file("big") == weights.cached
    assert "there are big" in invoke("download", "bigger", code=2)
    weights.cached.write_bytes(CONTENT[1:])
    with pytest.raises(FileError, match=r"the catalogue says .* for big 2"):
        catalogue.weights_file("big")


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
