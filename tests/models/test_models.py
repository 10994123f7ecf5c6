import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import pcnn
from pcnn.models import (
    SPVCNN,
    LitePTS,
    MinkUNet42,
    ResNet18,
    ResUNetBN2C,
    SparseResNet21,
    SparseResNetClassification,
    SparseResNetLarge,
    SparseResNetSegmentation,
    SpUNet,
    sparse_resnet_for,
)
from pcnn.nn import Conv3d, ConvTranspose3d
from pcnn.nn.features import JoinedTensor
from tests.clouds import surface_grid

PUBLISHED = {
    # convolution weights, convolutions with K > 1
    "minkunet42": (MinkUNet42, 21_709_184, 42),
    "sparse_resnet21": (SparseResNet21, 2_691_264, 21),
    "sparse_resnet_large": (SparseResNetLarge, 12_232_000, 20),
    "resunet_bn2c": (ResUNetBN2C, 8_748_960, 21),
    "resunet_bn2c_7": (partial(ResUNetBN2C, first_kernel=7), 8_755_936, 21),
}


def convolutions(model: nn.Module) -> list[Conv3d | ConvTranspose3d]:
    return [m for m in model.modules() if isinstance(m, Conv3d | ConvTranspose3d)]


@pytest.mark.parametrize(("make", "weights", "count"), PUBLISHED.values(), ids=PUBLISHED.keys())
def test_published_sizes(make: Callable[[], nn.Module], weights: int, count: int) -> None:
    layers = convolutions(make())
    assert sum(layer.weight.numel() for layer in layers) == weights
    assert sum(layer.kernel.volume > 1 for layer in layers) == count


@pytest.mark.parametrize(
    ("make", "width", "millions"),
    [
        *((MinkUNet42, *size) for size in ((0.5, 5.4), (0.64, 8.8))),
        *((SPVCNN, *size) for size in ((0.5, 5.5), (0.64, 8.8))),
    ],
)
def test_published_numbers_of_parameters(
    make: Callable[..., nn.Module], width: float, millions: float
) -> None:
    parameters = sum(p.numel() for p in make(width=width).parameters())
    assert parameters / 1e6 == pytest.approx(millions, abs=0.1)


def test_the_page_of_networks_counts_their_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    for draw in ("uniform_", "normal_"):  # millions of numbers that are only counted
        monkeypatch.setattr(torch.Tensor, draw, lambda self, *_, **__: self)
    page = Path(__file__).resolve().parents[2] / "docs/models.md"
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| ([\d,]+) \|", page.read_text(), re.MULTILINE)
    assert len(rows) == 10
    for name, told in rows:
        headless = name.startswith(("SparseResNet", "Voxel", "ResUNet"))
        network = getattr(pcnn.models, name)(4, **({} if headless else {"out_channels": 19}))
        assert sum(p.numel() for p in network.parameters()) == int(told.replace(",", "")), name


SEGMENTERS = {
    "minkunet": partial(MinkUNet42, width=0.125),
    "resunet": partial(ResUNetBN2C, in_channels=4, width=0.25, normalize_features=False),
    "sparse_resnet": lambda out_channels: SparseResNetSegmentation(
        SparseResNet21(width=0.25), out_channels, hidden=16
    ),
    "sparse_resnet_large": lambda out_channels: SparseResNetSegmentation(
        SparseResNetLarge(width=0.25), out_channels, hidden=16
    ),
    "spunet": partial(SpUNet, in_channels=4, width=0.125),
    "spvcnn": partial(SPVCNN, width=0.125),
    "litept": partial(LitePTS, width=0.125, window=16),
}


@pytest.mark.parametrize("make", SEGMENTERS.values(), ids=SEGMENTERS.keys())
@pytest.mark.parametrize("n", [0, 1, 200])
def test_segmenters_train_on_clouds_of_any_size(make: Callable[..., nn.Module], n: int) -> None:
    model = make(out_channels=5)
    grid = surface_grid(n, batch_size=2)
    y = model(pcnn.SparseTensor(torch.randn(grid.rows, 4), grid))
    assert y.geometry is grid
    assert y.features.shape == (grid.rows, 5)
    y.features.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("make", SEGMENTERS.values(), ids=SEGMENTERS.keys())
def test_clouds_of_a_batch_do_not_touch(make: Callable[..., nn.Module]) -> None:
    model = make(out_channels=3).eval()
    grids = [surface_grid(n, seed=n) for n in (60, 150)]
    rows = [torch.randn(grid.rows, 4) for grid in grids]
    joined = pcnn.SparseTensor(torch.cat(rows), pcnn.VoxelGrid.collate(grids))
    alone = [model(pcnn.SparseTensor(x, g)).features for x, g in zip(rows, grids, strict=True)]
    torch.testing.assert_close(model(joined).features, torch.cat(alone), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("make", SEGMENTERS.values(), ids=SEGMENTERS.keys())
def test_moving_a_cloud_by_the_coarsest_stride_moves_the_answer(
    make: Callable[..., nn.Module],
) -> None:
    model = make(out_channels=3).eval()
    grid = surface_grid(200)
    x = torch.randn(grid.rows, 4)
    shift = torch.tensor([32, -64, 16])
    moved = pcnn.geometry.grid_of_cells(grid.coords[:, 1:].long() + shift)
    expected = model(pcnn.SparseTensor(x, grid)).features
    torch.testing.assert_close(model(pcnn.SparseTensor(x, moved)).features, expected)


@pytest.mark.parametrize("name", ["litept", "spunet", "spvcnn"])
@pytest.mark.parametrize("downsampling", ["floor", "reached"])
def test_neither_plans_nor_the_order_of_rows_matter(name: str, downsampling: str) -> None:
    model = SEGMENTERS[name](out_channels=3).eval()
    cells, order = surface_grid(150, batch_size=2).coords, torch.randperm(150)
    order = order[order < len(cells)]
    features = torch.randn(len(cells), 4)
    results = []
    for rows, planned in ((slice(None), True), (order, True), (slice(None), False)):
        x = pcnn.from_coordinates(
            cells[rows], features[rows], batch_size=2, downsampling=downsampling
        )
        model.plans_input = planned
        results.append(model(x).at_points())
    straight, mixed, unplanned = results
    torch.testing.assert_close(mixed, straight[order], rtol=0, atol=0)
    torch.testing.assert_close(unplanned, straight, rtol=0, atol=0)


def test_descriptors_have_unit_length() -> None:
    grid = surface_grid(100)
    y = ResUNetBN2C(width=0.25)(pcnn.SparseTensor(torch.ones(grid.rows, 1), grid))
    assert y.channels == 32
    torch.testing.assert_close(y.features.norm(dim=1), torch.ones(grid.rows))


CLASSIFIERS = {
    "resnet18": partial(ResNet18, width=0.125),
    "sparse_resnet": lambda out_channels: SparseResNetClassification(
        SparseResNet21(width=0.25), out_channels
    ),
}


@pytest.mark.parametrize("make", CLASSIFIERS.values(), ids=CLASSIFIERS.keys())
@pytest.mark.parametrize("n", [0, 1, 200])
def test_classifier_gives_one_row_a_cloud(make: Callable[..., nn.Module], n: int) -> None:
    model = make(out_channels=7)
    grid = surface_grid(n, batch_size=3)
    y = model(pcnn.SparseTensor(torch.randn(grid.rows, 4), grid))
    assert y.shape == (3, 7)
    y.sum().backward()
    assert y.isfinite().all()


@pytest.mark.parametrize("make", CLASSIFIERS.values(), ids=CLASSIFIERS.keys())
def test_an_empty_cloud_of_a_batch_leaves_the_others_alone(make: Callable[..., nn.Module]) -> None:
    model = make(out_channels=3).eval()
    grids = [surface_grid(60, seed=1), surface_grid(0), surface_grid(150, seed=2)]
    rows = [torch.randn(grid.rows, 4) for grid in grids]
    joined = model(pcnn.SparseTensor(torch.cat(rows), pcnn.VoxelGrid.collate(grids)))
    torch.testing.assert_close(joined[1], model.head.bias)
    for cloud in (0, 2):
        alone = model(pcnn.SparseTensor(rows[cloud], grids[cloud]))
        torch.testing.assert_close(joined[cloud], alone[0], rtol=1e-4, atol=1e-5)


def test_the_head_of_a_backbone_goes_by_the_task() -> None:
    made = sparse_resnet_for("classification", SparseResNet21(width=0.25), 11)
    assert isinstance(made, SparseResNetClassification)
    assert isinstance(
        sparse_resnet_for("segmentation", SparseResNetLarge(width=0.25), 3),
        SparseResNetSegmentation,
    )
    with pytest.raises(ValueError, match="'registration'"):
        sparse_resnet_for("registration", SparseResNet21(width=0.25), 3)


def test_stages_of_the_backbones() -> None:
    grid = surface_grid(200)
    x = pcnn.SparseTensor(torch.randn(grid.rows, 4), grid)
    outputs = SparseResNet21(width=0.25)(x)
    strides = [y.geometry.tensor_stride for y in outputs]
    assert strides == [(1, 1, 1), (2, 2, 2), (4, 4, 4), (8, 8, 8), (8, 8, 16)]
    assert len(SparseResNetLarge(width=0.25)(x)) == 4


def test_engines_and_parts_are_injected() -> None:
    model = MinkUNet42(width=0.125, engine="reference", norm=nn.Identity().__class__)
    assert {layer.engine.name for layer in convolutions(model)} == {"reference"}
    assert not any(isinstance(m, nn.BatchNorm1d) for m in model.modules())


NETWORKS = {
    **{name: partial(make, out_channels=5) for name, make in SEGMENTERS.items()},
    "resnet18": partial(ResNet18, out_channels=5, width=0.125),
}


def shaken(model: nn.Module) -> nn.Module:
    """Norms with statistics and weights of no special value, in evaluation mode."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d):
            for tensor in (module.weight, module.bias, module.running_mean, module.running_var):
                tensor.data.uniform_(0.5, 1.5)
    return model.eval()


@pytest.mark.parametrize("make", NETWORKS.values(), ids=NETWORKS.keys())
def test_inference_fuses_and_gives_the_same(make: Callable[..., nn.Module]) -> None:
    model, grid = shaken(make().double()), surface_grid(200, batch_size=2)
    x = pcnn.SparseTensor(torch.randn(grid.rows, 4, dtype=torch.float64), grid)
    expected = model(x)
    folded = [m._folded for m in model.eval().modules() if hasattr(m, "_folded")]
    assert not any(f._kept for f in folded)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    with torch.no_grad():
        y = model(x)
    assert folded
    assert all(f._kept for f in folded)
    after = model.state_dict()
    assert list(before) == list(after)
    assert all(torch.equal(before[key], after[key]) for key in before)
    if isinstance(y, pcnn.SparseTensor):
        y, expected = y.features, expected.features
    torch.testing.assert_close(y, expected.detach())


@pytest.mark.parametrize("make", [MinkUNet42, ResUNetBN2C])
def test_inference_copies_no_skips(
    make: Callable[..., nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, grid = shaken(make(in_channels=4, width=0.125)), surface_grid(200)
    joined: list[JoinedTensor] = []
    start = JoinedTensor.__init__

    def remembered(self: JoinedTensor, *args: Any) -> None:
        start(self, *args)
        joined.append(self)

    monkeypatch.setattr(JoinedTensor, "__init__", remembered)
    with torch.no_grad():
        model(pcnn.SparseTensor(torch.randn(grid.rows, 4), grid))
    assert joined
    assert all(x.is_apart for x in joined)
