from __future__ import annotations

from pathlib import Path

import pytest
import torch

from pcnn.bench.networks.figures import FIGURES
from pcnn.bench.networks.measured import Setting
from pcnn.bench.rows import Header, write_rows
from pcnn.bench.scenes import Scene, noise
from pcnn.bench.suite import draw
from pcnn.geometry import grid_of_cells
from pcnn.ops.engine import resolve

SMALL = Scene("small", grid_of_cells(torch.from_numpy(noise(200, fill=0.3))))
SETTING = Setting(
    torch.device("cpu"),
    [SMALL],
    [resolve("auto")],
    width=0.25,
    repeats=3,
    check_voxels=300,
    sizes=(1000, 2000),
    kernel_sizes=(3, 5),
)


@pytest.mark.parametrize("figure", FIGURES[1:], ids=lambda figure: figure.name)
def test_a_figure_is_measured_and_drawn(figure, tmp_path: Path) -> None:
    rows = list(figure.measure(SETTING, figure.name))
    assert rows
    for row in rows:
        assert row.checked or "left_out" in (row.params or {})
        assert row.figure == figure.name
    assert any(row.checked for row in rows)
    header = Header("cpu", "2.6.0", "abc", "2026-01-31")
    path = write_rows(tmp_path / "networks.json", header, rows)
    assert draw(path, FIGURES)
