"""Damaged checkpoints are told by name, and full disks as full disks."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import torch

from pcnn.callbacks.checkpoint import AtomicCheckpointIO
from pcnn.checkpoints import CheckpointError, read_checkpoint
from pcnn.checkpoints.checkpoint_file import write_whole

CONTENT = {"pcnn_config": {"a": 1}, "state_dict": {"w": torch.arange(7.0)}, "global_step": 3}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_whole(CONTENT, tmp_path / "x.ckpt")
    return tmp_path / "x.ckpt"


def test_flipped_bits_and_torn_files_are_told_by_name_or_change_nothing(path: Path) -> None:
    whole, refused = path.read_bytes(), 0
    places = range(0, 8 * len(whole), 23)  # every byte's turn, and every bit's
    for place in places:
        bad = bytearray(whole)
        bad[place // 8] ^= 1 << place % 8
        path.write_bytes(bad)
        try:
            found = AtomicCheckpointIO().load_checkpoint(path)
        except CheckpointError as error:
            refused += error.path == path
        else:  # padding between records, the date of one
            assert torch.equal(found.pop("state_dict")["w"], torch.arange(7.0))
            assert found == {"pcnn_config": {"a": 1}, "global_step": 3}
    assert refused > 0.3 * len(places)
    for size in (0, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(CheckpointError) as torn:
            read_checkpoint(path)
        assert torn.value.path == path


def test_a_checkpoint_of_an_earlier_version_loads(tmp_path: Path) -> None:
    torch.save(CONTENT, tmp_path / "old.ckpt")
    assert read_checkpoint(tmp_path / "old.ckpt")["global_step"] == 3
    torch.save([1], tmp_path / "list.ckpt")
    with pytest.raises(CheckpointError, match=r"list\.ckpt: not a checkpoint of a run"):
        read_checkpoint(tmp_path / "list.ckpt")
    torch.save({"pcnn_config": io.BytesIO}, tmp_path / "code.ckpt")
    with pytest.raises(CheckpointError, match=r"code\.ckpt: not a whole checkpoint"):
        read_checkpoint(tmp_path / "code.ckpt")


def test_a_full_disk_keeps_the_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = path.read_bytes()
    opened = Path.open

    def full(self: Path, mode: str = "r", *args: object) -> object:
        return opened(Path("/dev/full") if "x" in mode else self, mode.replace("x", "w"), *args)

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises((OSError, RuntimeError)):
        write_whole({"big": torch.zeros(1 << 20)}, path)
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["x.ckpt"]
