"""What is printed: tensors in one line, names of files as they are, work by the clock."""

from __future__ import annotations

import io

import pytest
import torch
from rich.table import Table

import pcnn
from pcnn.console import Console, plain
from pcnn.geometry import KernelMap
from pcnn.messages import visible

VOXELS = "VoxelGrid(rows=7, batch_size=1, tensor_stride=1, downsampling=floor, device=cpu)"
EVIL = "a\x1b[2J\u202eb"
NAMES = ["a[left].bin", "x[/z]", "[red]", "a:smile:", "\x1b[31m\x1b]0;x\x07", EVIL, "a\r\x9b2J"]


def test_tensors_and_maps_are_one_line_and_nothing_is_read() -> None:
    places = torch.arange(7.0).repeat_interleave(2)[:, None].expand(-1, 3)
    x = pcnn.voxelize(places, torch.rand(14, 5), voxel_size=0.5)
    assert repr(x) == f"SparseTensor(features=[7, 5] float32, geometry={VOXELS})"
    elsewhere = x.to("meta")  # its tensors have no values
    assert repr(elsewhere) == repr(x).replace("device=cpu", "device=meta")
    table = torch.tensor([[0, -1, 1], [1, 0, -1]], dtype=torch.int32)
    found = KernelMap.from_table(table, n_in=3)
    assert "layouts=[table]" in repr(found)
    assert "layouts=[]" in repr(found.transpose())


@pytest.mark.parametrize("name", NAMES)
def test_names_pass_through_every_place_of_a_console(name: str) -> None:
    shown = visible(name)
    assert shown.isprintable()
    table = Table(name, title=name, caption=name)
    table.add_row(name)
    table.add_row(plain(name))
    for printed, times in ((name, 1), (table, 5)):
        file = io.StringIO()
        Console(file=file, width=300).print(printed)
        assert file.getvalue().count(shown) == times
    file = io.StringIO()
    Console(file=file, width=10).say(f"{name} is bad", name, "red")
    assert file.getvalue() == f"{shown}: {shown} is bad\n"
    assert visible("a\n\tü\x1b[") == "a\n\tü\\x1b["
