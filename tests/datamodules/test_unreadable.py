from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from pcnn.datamodules import CloudDataModule
from pcnn.datamodules.batch_stream import SampleError
from pcnn.programs.command_line import short_errors
from tests.datamodules.modules import kitti_module
from tests.datasets.clouds import write_scan


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Four training scans, of which number 2 is torn, and two for validation."""
    for frame in range(4):
        write_scan(tmp_path / "kitti", 0, frame, 40 + frame)
    write_scan(tmp_path / "kitti", 8, 0, 30)
    write_scan(tmp_path / "kitti", 8, 1, 30)
    os.truncate(tmp_path / "kitti/sequences/00/velodyne/000002.bin", 77)
    return tmp_path / "kitti"


def module(root: Path, **options: object) -> CloudDataModule:
    settings = {"train_sequences": [0], "num_workers": 0, "cache": False, "crop": None}
    return kitti_module(str(root), **(settings | options))


@pytest.mark.parametrize("workers", [0, 1])
def test_the_file_is_named_and_what_to_do(
    root: Path, workers: int, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SampleError) as raised:
        list(module(root, num_workers=workers).train_dataloader())
    lines = str(raised.value).splitlines()
    assert "000002.bin: 77 bytes" in lines[0]
    assert "dataset.on_error=skip" in lines[1]
    assert "Traceback" not in str(raised.value)
    assert len(lines) == 2
    with pytest.raises(SystemExit), short_errors():
        list(module(root).train_dataloader())
    assert 1 < len(capsys.readouterr().err.splitlines()) <= 3


@pytest.mark.parametrize("workers", [0, 1])
def test_the_next_scan_takes_its_place(root: Path, workers: int, caplog: pytest.LogCaptureFixture):
    data = module(root, on_error="skip", num_workers=workers, batch_size=2)
    stream = data.train_dataloader()
    epochs = [[name for batch in stream for name in batch.names] for _ in "ab"]
    for epoch in epochs:
        assert sorted(epoch) == ["00/000000", "00/000001", "00/000003", "00/000003"]
    if not workers:  # a worker process says it on the terminal
        (said,) = (message for message in caplog.messages if "left out" in message)  # once
        assert "000002.bin" in said


def test_evaluation_counts_every_scan(root: Path):
    data = module(root, on_error="skip")
    assert len(list(data.val_dataloader())) == 2
    os.truncate(root / "sequences/08/labels/000001.label", 0)
    with pytest.raises(SampleError, match=r"000001\.label: .*\n"):
        list(data.val_dataloader())


def test_a_disk_that_is_gone_is_no_bad_file(root: Path, caplog: pytest.LogCaptureFixture):
    data = module(root, on_error="skip")
    stream = data.train_dataloader()
    for path in root.glob("sequences/00/velodyne/*.bin"):
        path.unlink()
    with caplog.at_level(logging.CRITICAL), pytest.raises(SampleError, match="in a row"):
        list(stream)
