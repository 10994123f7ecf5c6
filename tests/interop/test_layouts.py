"""Weights of other packages in our layout give what those packages define."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import pcnn
from pcnn.geometry import Kernel, grid_of_cells
from pcnn.interop import (
    FLEXGEMM,
    LAYOUTS,
    MINKOWSKI,
    POINTELLIGENCE,
    SPCONV,
    SPCONV_RSCK,
    SPCONV_RSKC,
    TORCHSPARSE,
    WARPCONVNET,
    ChannelsAround,
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
BY_OFFSET = [
    (MINKOWSKI, defined.minkowski_offsets),
    (TORCHSPARSE, defined.torchsparse_offsets),
    (WARPCONVNET, defined.warpconvnet_offsets),
    (POINTELLIGENCE, defined.pointelligence_offsets),
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


def layers(kernel: Kernel, groups: int = 1) -> tuple[Conv3d, ConvTranspose3d]:
    """A layer and a transposed one, in float64."""
    given = {"groups": groups, "bias": False, "padding": kernel.padding}
    down = Conv3d(4, 6, kernel.size, kernel.stride, **given)  # type: ignore[arg-type]
    up = ConvTranspose3d(6, 4, kernel.size, kernel.stride, **given)  # type: ignore[arg-type]
    return down.double(), up.double()


@pytest.mark.parametrize(
    ("layout", "offsets", "kernel", "groups"),
    [
        (layout, offsets, Kernel.of(*kernel), groups)
        for layout, offsets in BY_OFFSET
        for kernel in KERNELS
        for groups in ((1,) if layout.groups == "never" else (1, 2))
        if layout is not POINTELLIGENCE or kernel[0] in (1, 3, 5)
    ],
    ids=lambda one: getattr(one, "package", None) or getattr(one, "__name__", str(one)),
)
def test_slots_are_where_a_package_looks(
    layout: WeightLayout, offsets: defined.Offsets, kernel: Kernel, groups: int
) -> None:
    of, places = kernel, offsets(kernel.size)
    if layout is TORCHSPARSE:  # its even kernels begin before the site
        low = [-min(axis) for axis in zip(*places, strict=True)]
        of = Kernel.of(kernel.size, kernel.stride, padding=low)
    down, up = layers(of, groups)
    x = pcnn.SparseTensor(normal(SITES.rows, 4), SITES)
    y = down(x)
    theirs = layout.from_ours(down.weight.detach(), of, groups)
    found = defined.by_offset(cells(x), cells(y), x.features, theirs, places, of.stride)
    torch.testing.assert_close(y.features, found, rtol=DENSE, atol=DENSE)
    assert torch.equal(layout.to_ours(theirs, of, groups), down.weight)
    theirs = layout.from_ours(up.weight.detach(), of, groups)
    found = defined.by_offset(cells(y), cells(x), y.features, theirs, places, of.stride, True)
    torch.testing.assert_close(up(y, x).features, found, rtol=DENSE, atol=DENSE)


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_kernel_axes_are_those_of_spconv(kernel: tuple[Any, Any]) -> None:
    of = Kernel.of(*kernel)
    down, up = layers(of)
    x = pcnn.SparseTensor(normal(SITES.rows, 4), SITES)
    y = down(x)
    theirs = FLEXGEMM.from_ours(down.weight.detach(), of)
    found = defined.spconv(cells(x), cells(y), x.features, theirs, of.stride, of.padding)
    torch.testing.assert_close(y.features, found, rtol=DENSE, atol=DENSE)
    back = FLEXGEMM.from_ours(up.weight.detach(), of)
    found = defined.spconv(cells(y), cells(x), y.features, back, of.stride, of.padding, True)
    torch.testing.assert_close(up(y, x).features, found, rtol=DENSE, atol=DENSE)
    if of.is_pointwise:  # spconv multiplies by its memory
        memory = SPCONV.from_ours(down.weight.detach(), of).view(4, 6)
        torch.testing.assert_close(y.features, x.features @ memory, rtol=DENSE, atol=DENSE)
        return
    assert torch.equal(SPCONV.from_ours(down.weight.detach(), of), theirs)
    turned = ChannelsAround("spconv", "Apache-2.0", axes="zyx").from_ours(down.weight.detach(), of)
    assert torch.equal(turned, theirs.permute(0, 3, 2, 1, 4))


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_there_and_back(layout: WeightLayout, kernel: tuple[Any, Any]) -> None:
    of = Kernel.of(*kernel)
    ours = normal(of.volume, 3, 5).half()
    theirs = layout.from_ours(ours, of)
    assert theirs.is_contiguous()
    assert torch.equal(layout.to_ours(theirs, of), ours)
    zyx = ChannelsAround("p", "MIT", order="RSKC", axes="zyx")
    assert torch.equal(zyx.to_ours(zyx.from_ours(ours, of), of), ours)


def test_shapes_are_those_of_the_packages() -> None:
    of, ours = Kernel.of((3, 2, 1)), normal(6, 3, 5)
    shapes = {
        MINKOWSKI: (6, 3, 5),
        POINTELLIGENCE: (6, 1, 3, 5),
        SPCONV: (5, 3, 2, 1, 3),
        SPCONV_RSKC: (3, 2, 1, 5, 3),
        SPCONV_RSCK: (3, 2, 1, 3, 5),
    }
    for layout, shape in shapes.items():
        assert layout.from_ours(ours, of).shape == shape
        assert layout.licence in ("MIT", "Apache-2.0")
    assert TORCHSPARSE.from_ours(normal(1, 3, 5), Kernel.of(1)).shape == (3, 5)


@pytest.mark.parametrize(
    ("layout", "shape", "groups"),
    [(MINKOWSKI, (8, 3, 5), 1), (SPCONV, (5, 3, 3, 1, 3), 1), (WARPCONVNET, (27, 3, 4), 2)],
)
def test_a_weight_of_another_layer_is_refused(
    layout: WeightLayout, shape: tuple[int, ...], groups: int
) -> None:
    with pytest.raises(ValueError, match=f"none of {layout.package} .* size \\(3, 3, 3\\)"):
        layout.to_ours(normal(*shape), Kernel.of(3), groups)
    for one in (MINKOWSKI, SPCONV):
        with pytest.raises(ValueError, match="in 2 groups"):
            one.from_ours(normal(27, 2, 4), Kernel.of(3), 2)
