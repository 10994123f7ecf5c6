import json
from pathlib import Path

import pytest
import torch
from rich.console import Console

from pcnn.experiment.height_range import compare
from pcnn.models import HeightRange
from tests.experiment.tiny_kitti import write_tiny_kitti


def test_the_commonest_class_of_a_bin() -> None:
    model = HeightRange(3)
    points = torch.tensor([[3.0, 4.0, 0.05]] * 3 + [[0.0, 5.5, 0.01]] * 2 + [[20.0, 0.0, 2.0]])
    model.update(points, torch.tensor([1, 1, 2, 0, 255, 2]))
    asked = torch.tensor(
        [
            [0.0, -5.2, 0.09],  # the bin of the first five: 1 twice, 2 and 0 once
            [20.5, 0.0, 2.05],  # the bin of the last
            [50.0, 0.0, 2.0],  # nothing at this range: the commonest of this height
            [0.0, 0.0, 7.0],  # nothing at this height: the commonest of all
            [0.0, 500.0, 99.0],  # beyond every bin
        ]
    )
    model.update(torch.tensor([[70.0, 0.0, -3.0]] * 3), torch.tensor([0, 0, 0]))
    assert model(asked).tolist() == [1, 2, 2, 0, 0]
    assert int(model.counts.sum()) == 8


def test_nothing_learnt_and_nothing_asked() -> None:
    model = HeightRange(3)
    assert model(torch.zeros(0, 3)).shape == (0,)
    assert model(torch.zeros(2, 3)).tolist() == [0, 0]


def test_figures_are_printed_and_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_tiny_kitti(tmp_path / "data", {0: 3, 8: 1})
    out = tmp_path / "height.json"
    figures = compare(
        tmp_path / "data", tmp_path / "data", None, None, None, "official", out, Console()
    )
    assert "by height and range alone: 3 real scans counted" in capsys.readouterr().out
    written = json.loads(out.read_text())
    assert written["metrics"] == figures
    assert written["source"] == "real"
    assert figures["test/iou/road"] > 0.9  # all of it lies lower than the rest
    assert 0 < figures["test/iou/pole"] < 0.9  # as high as the wall
