"""Weights of other packages in our layout give what those packages define."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import pcnn
from pcnn.geometry import Kernel, grid_of_cells
from pcnn.interop import (
    MINKOWSKI,
    SPCONV,
    TORCHSPARSE,
    ChannelsAround,
    SlotsFirst,
    WeightLayout,
)
from pcnn.nn import Conv3d, ConvTranspose3d
from tests.interop import definitions as defined
from tests.tolerance import DENSE

SITES = grid_of_cells(
    torch.randint(-3, 4, (60, 3), generator=torch.Generator().manual_seed(3)),
    torch.arange(60) % 2,
    2,
)
OURS = SlotsFirst("warpconvnet", "MIT")
AROUND, TURNED = ChannelsAround("around", "MIT"), ChannelsAround("turned", "MIT", axes="zyx")
LAYOUTS = (MINKOWSKI, TORCHSPARSE, OURS, SPCONV, AROUND, TURNED)
BY_OFFSET = [
    (MINKOWSKI, defined.minkowski_offsets),
    (TORCHSPARSE, defined.torchsparse_offsets),
    (OURS, defined.warpconvnet_offsets),
]
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


def cells(x: pcnn.SparseTensor) -> torch.Tensor:
    """Sites in units of their own voxels."""
    step = torch.tensor((1, *x.tensor_stride))
    return torch.div(x.coords.long(), step, rounding_mode="floor")


def layers(kernel: Kernel) -> tuple[Conv3d, ConvTranspose3d]:
    """A layer and a transposed one, in float64."""
    down = Conv3d(4, 6, kernel.size, kernel.stride, bias=False, padding=kernel.padding)
    up = ConvTranspose3d(6, 4, kernel.size, kernel.stride, bias=False, padding=kernel.padding)
    return down.double(), up.double()


@pytest.mark.parametrize(
    ("layout", "offsets", "kernel"),
    [(layout, offsets, Kernel.of(*kernel)) for layout, offsets in BY_OFFSET for kernel in KERNELS],
    ids=lambda one: getattr(one, "package", None) or getattr(one, "__name__", str(one)),
)
def test_slots_are_where_a_package_looks(
    layout: WeightLayout, offsets: defined.Offsets, kernel: Kernel
) -> None:
    of, places = kernel, offsets(kernel.size)
    if layout is TORCHSPARSE:  # its even kernels begin before the site
        low = [-min(axis) for axis in zip(*places, strict=True)]
        of = Kernel.of(kernel.size, kernel.stride, padding=low)
    down, up = layers(of)
    x = pcnn.SparseTensor(normal(SITES.rows, 4), SITES)
    y = down(x)
    theirs = layout.from_ours(down.weight.detach(), of)
    found = defined.by_offset(cells(x), cells(y), x.features, theirs, places, of.stride)
    torch.testing.assert_close(y.features, found, rtol=DENSE, atol=DENSE)
    theirs = layout.from_ours(up.weight.detach(), of)
    found = defined.by_offset(cells(y), cells(x), y.features, theirs, places, of.stride, True)
    torch.testing.assert_close(up(y, x).features, found, rtol=DENSE, atol=DENSE)


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_kernel_axes_are_those_of_spconv(kernel: tuple[Any, Any]) -> None:
    of = Kernel.of(*kernel)
    down, up = layers(of)
    x = pcnn.SparseTensor(normal(SITES.rows, 4), SITES)
    y = down(x)
    theirs = AROUND.from_ours(down.weight.detach(), of)
    found = defined.spconv(cells(x), cells(y), x.features, theirs, of.stride, of.padding)
    torch.testing.assert_close(y.features, found, rtol=DENSE, atol=DENSE)
    back = AROUND.from_ours(up.weight.detach(), of)
    found = defined.spconv(cells(y), cells(x), y.features, back, of.stride, of.padding, True)
    torch.testing.assert_close(up(y, x).features, found, rtol=DENSE, atol=DENSE)
    if of.is_pointwise:  # spconv multiplies by its memory
        memory = SPCONV.from_ours(down.weight.detach(), of).view(4, 6)
        torch.testing.assert_close(y.features, x.features @ memory, rtol=DENSE, atol=DENSE)
        return
    assert torch.equal(SPCONV.from_ours(down.weight.detach(), of), theirs)
    turned = TURNED.from_ours(down.weight.detach(), of)
    assert torch.equal(turned, theirs.permute(0, 3, 2, 1, 4))


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
