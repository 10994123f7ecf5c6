"""Weights of other packages in our layout give what those packages define."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from pcnn.geometry import Kernel
from pcnn.interop import MINKOWSKI, SPCONV, TORCHSPARSE, ChannelsAround, SlotsFirst, WeightLayout

OURS = SlotsFirst("warpconvnet", "MIT")
AROUND, TURNED = ChannelsAround("around", "MIT"), ChannelsAround("turned", "MIT", axes="zyx")
LAYOUTS = (MINKOWSKI, TORCHSPARSE, OURS, SPCONV, AROUND, TURNED)
#: Size and stride.
KERNELS: list[tuple[Any, Any]] = [
    (3, 1),
    (5, 1),
    (1, 1),
    (2, 2),
    (3, 2),
    ((1, 1, 3), (1, 1, 2)),
    ((3, 1, 2), 1),
    (4, 2),
]


def normal(*shape: int) -> torch.Tensor:
    random = torch.Generator().manual_seed(len(shape))
    return torch.randn(shape, generator=random, dtype=torch.float64)


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda one: one.package)
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_there_and_back(layout: WeightLayout, kernel: tuple[Any, Any]) -> None:
    of = Kernel.of(*kernel)
    ours = normal(of.volume, 3, 5).half()
    theirs = layout.from_ours(ours, of)
    assert theirs.is_contiguous()
    assert torch.equal(layout.to_ours(theirs, of), ours)


@pytest.mark.parametrize(
    ("layout", "shape"), [(MINKOWSKI, (8, 3, 5)), (SPCONV, (5, 3, 3, 1, 3)), (OURS, (27, 2, 3, 4))]
)
def test_a_weight_of_another_layer_is_refused(layout: WeightLayout, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=f"none of {layout.package} .* size \\(3, 3, 3\\)"):
        layout.to_ours(normal(*shape), Kernel.of(3))


def test_spconv_multiplies_by_the_memory_of_a_pointwise_weight() -> None:
    weight = normal(5, 1, 1, 1, 3)
    assert torch.equal(SPCONV.to_ours(weight, Kernel.of(1))[0], weight.reshape(3, 5))
    assert torch.equal(AROUND.to_ours(weight, Kernel.of(1))[0], weight.reshape(5, 3).t())
