"""Real CUDA graphs on native points: what eager gives, no waits behind a plan, and flat memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import pcnn
from pcnn.graphs.buckets import Edges
from pcnn.graphs.capture import CudaGraphs
from pcnn.graphs.fixed_input import FixedInput
from pcnn.graphs.input_sizes import Sizes
from pcnn.losses import CrossEntropy
from pcnn.models import MinkUNet42, ResNet18, ResUNetBN2C, SparseResNet21
from pcnn.ops import resolve
from pcnn.tensor import SparseTensor
from tests.clouds import surface
from tests.tolerance import LIKE_EAGER, relative_rms
from tests.waits import nothing_waits

pytestmark = [pytest.mark.gpu, pytest.mark.long]

DEVICE = torch.device("cuda")
MODELS: dict[str, Callable[..., nn.Module]] = {
    "resunet": partial(ResUNetBN2C, 4, width=0.5),
    "minkunet42": partial(MinkUNet42, 4, 5, 0.25),
    "sparse_resnet21": partial(SparseResNet21, width=0.5),
    "resnet18": partial(ResNet18, width=0.25),
}


def cloud(n: int, seed: int = 0, cell: float = 0.1, device: torch.device = DEVICE) -> SparseTensor:
    """Points on surfaces, several in many cells of 0.1 m."""
    draw = torch.Generator().manual_seed(seed)
    places = (surface(n, seed=seed) + torch.rand(n, 3, generator=draw)) * 0.07
    features = torch.randn(n, 4, generator=draw)
    return pcnn.native_points(places.to(device), features.to(device), voxel_size=cell, batch_size=1)


def network(name: str = "resunet", **options: Any) -> Any:
    torch.manual_seed(0)
    return MODELS[name](**options).to(DEVICE).eval()


def tensors(output: Any) -> list[Tensor]:
    if isinstance(output, dict):
        output = list(output.values())
    parts = output if isinstance(output, list | tuple) else [output]
    return [part.features if isinstance(part, SparseTensor) else part for part in parts]


def same(found: Any, wanted: Any, dtype: torch.dtype = torch.float32) -> None:
    for one, other in zip(tensors(found), tensors(wanted), strict=True):
        assert one.shape == other.shape
        assert not len(other) or relative_rms(one, other) < LIKE_EAGER[dtype]


def test_dense_cells_whose_steps_are_not_all_stored() -> None:
    net = network()
    run = pcnn.runtime.graph(net)
    for number in (3_000, 2_500, 3_000):  # hundreds of points in a cell
        x = cloud(number, 1, cell=1.0)
        found = run(x)
        with torch.inference_mode():
            same(found, net(cloud(number, 1, cell=1.0)))
    assert run.reason is None
    (built,) = (one for one in x.geometry.cached_maps() if one.volume == 125)
    assert (built.layout("steps")[1] < 0).any()


@pytest.mark.parametrize("engine", ["auto", "pointcnnpp"])
@pytest.mark.parametrize("half", [False, True])
def test_steps_equal_eager_ones(half: bool, engine: str) -> None:
    deterministic = engine == "auto"
    chosen = resolve(engine, deterministic=deterministic)
    net = network(normalize_features=False, engine=chosen).train()
    state = {name: value.clone() for name, value in net.state_dict().items()}
    parameters = list(net.parameters())

    def step(x: SparseTensor, labels: Tensor) -> dict[str, Tensor]:
        with torch.autocast("cuda", torch.float16, enabled=half, cache_enabled=False):
            loss = CrossEntropy()(net(x).features, labels)
        gradients = torch.autograd.grad(256 * loss, parameters)
        found = {str(n): gradient for n, gradient in enumerate(gradients)}
        return {"loss": loss.detach(), **found}

    def batch(n: int, seed: int) -> tuple[SparseTensor, Tensor]:
        x = cloud(n, seed)
        draw = torch.Generator().manual_seed(seed)
        labels = torch.randint(0, 32, (n,), generator=draw).to(DEVICE)
        net.planner(x.geometry, True)
        return x, labels

    x, labels = batch(6_000, 1)
    recipe = net.planner.recipe_on(x.geometry)
    fixed = FixedInput(recipe, x, Sizes.of(recipe, x).room(Edges()))
    fixed.take(x, {"labels": (labels, 255)})
    for _ in range(2):
        step(fixed.tensor, fixed.beside["labels"])
    held: dict[str, Tensor] = {}
    replay = CudaGraphs()(lambda: held.update(step(fixed.tensor, fixed.beside["labels"])))
    tolerance = 5e-2 if half else 1e-3
    for n, seed in ((6_000, 1), (5_500, 2), (6_100, 3), (6_000, 1)):
        x, labels = batch(n, seed)
        if not Sizes.of(recipe, x).fits(fixed.room):
            continue
        net.load_state_dict(state)
        wanted = [*step(x, labels).values(), *(b.clone() for b in net.buffers())]
        net.load_state_dict(state)
        with nothing_waits():
            fixed.take(x, {"labels": (labels, 255)})
            replay()
            found = [value.clone() for value in held.values()]
        found += [b.clone() for b in net.buffers()]
        assert relative_rms(found[0], wanted[0]) < tolerance
        one, other = (torch.cat([t.flatten().double() for t in all_]) for all_ in (found, wanted))
        assert relative_rms(one, other) < 5 * tolerance
