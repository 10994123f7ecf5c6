from __future__ import annotations

import pytest
import torch

from pcnn.bench.layers.setting import KINDS, LayerShape, Setting
from pcnn.geometry import Kernel


def test_layers_are_read_from_text() -> None:
    assert LayerShape.parse("16:32:3") == LayerShape(16, 32, 3, 1)
    assert LayerShape.parse("16:32:2:2").kernel == Kernel.of(2, 2)
    for text in ("16", "16:32", "16:32:3:1:1", "a:b:c", "0:1:3", "-1:1:3"):
        with pytest.raises(ValueError, match="must be c_in:c_out:size"):
            LayerShape.parse(text)


def test_layers_come_kernel_by_kernel() -> None:
    shapes = (LayerShape(4, 4, 3), LayerShape(4, 4, 5), LayerShape(8, 8, 3))
    setting = Setting(torch.device("cpu"), [], [], shapes)
    wanted = setting.wanted("street", None, None)
    assert list(wanted) == [Kernel.of(3), Kernel.of(5)]
    assert wanted[Kernel.of(3)] == [(shapes[0], list(KINDS)), (shapes[2], list(KINDS))]


def test_places_choose_among_layers_and_kinds_but_not_for_figures_of_their_own() -> None:
    shape = LayerShape(4, 4, 3)
    places = {"street": {shape: ["layer", "map+train"]}}
    setting = Setting(torch.device("cpu"), [], [], (shape,), places=places)
    assert setting.wanted("street", None, None)[Kernel.of(3)] == [(shape, ["layer", "map+train"])]
    assert setting.wanted("street", None, ["layer"])[Kernel.of(3)] == [(shape, ["layer"])]
    assert not setting.wanted("elsewhere", None, None)
    assert setting.wanted("elsewhere", [shape], ["layer"])[Kernel.of(3)] == [(shape, ["layer"])]
