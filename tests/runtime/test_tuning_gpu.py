"""Tuning on a GPU: candidates are right or refused, times are the device's, decisions are used."""

import pytest
import torch
from torch import nn

import pcnn
from pcnn.dataflows import Reference
from pcnn.dataflows.products import PRODUCTS, Product
from pcnn.dataflows.tuned import tuned
from pcnn.dataflows.tuning_file import read, user_path
from pcnn.runtime.candidates import compare, default_candidates
from pcnn.runtime.layer_calls import recorded
from tests.clouds import surface_grid
from tests.runtime.flawed import Slow
from tests.waits import nothing_waits

pytestmark = [pytest.mark.gpu, pytest.mark.long]


def cloud(n: int, channels: int = 4) -> pcnn.SparseTensor:
    grid = surface_grid(n).to("cuda")
    return pcnn.SparseTensor(torch.randn(grid.rows, channels, device="cuda"), grid)


@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize(("size", "stride"), [(3, 1), (2, 2)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_every_candidate_is_right(product: str, size: int, stride: int, dtype: torch.dtype) -> None:
    layer = pcnn.nn.Conv3d(32, 48, size, stride).cuda().to(dtype)
    x = cloud(20_000, 32)
    (calls,) = recorded(layer, [x.replace(x.features.to(dtype))]).values()
    offered = default_candidates(calls[0], product)
    outcome = compare(calls, product, [*offered, Reference()], repeats=3)
    wrong = {dataflow.name: why for dataflow, why in outcome.refused.items() if why}
    assert not wrong


def test_the_hosts_time_does_not_count() -> None:
    layer = pcnn.nn.Conv3d(16, 16, 3).cuda().half()
    x = cloud(5_000, 16)
    (calls,) = recorded(layer, [x.replace(x.features.half())]).values()
    lazy = Slow(seconds=0.002)
    ms = compare(calls, "forward", [lazy, Reference()], repeats=3).ms
    assert ms[lazy] < 1.5 * ms[Reference()] + 1.0


def small_net() -> nn.Module:
    """Few shapes: a kernel is compiled for each candidate and shape."""
    layers = pcnn.nn.Conv3d(16, 32, 3), pcnn.nn.Conv3d(32, 32, 2, 2), pcnn.nn.Conv3d(32, 32, 3)
    return nn.Sequential(*layers).cuda()


def test_a_tuned_network_gives_the_same_values_and_remembers() -> None:
    net, x = small_net(), cloud(20_000, 16)
    with torch.no_grad(), torch.autocast("cuda", torch.float16):
        before = net(x).features
        layers = pcnn.tune(net, [x], samples=1, progress=False)
        after = net(x).features
    scale = before.float().square().mean().sqrt()
    assert (after.float() - before.float()).square().mean().sqrt() < 0.01 * scale
    assert all(layer.ms for layer in layers)
    assert len(read(user_path()))
    first = net[0]
    built = x.geometry.cached_map(x.geometry, first.kernel)
    product = Product("forward", torch.float16, 16, 32)
    untuned = pcnn.ops.resolve("auto").untuned(built, x.features.device)
    found = tuned(untuned, x.features.device, product, 27, x.geometry.rows)
    chosen = first.engine.dataflow
    assert found.needs == untuned.needs
    if chosen.needs == untuned.needs:
        assert found == chosen
    with torch.autocast("cuda", torch.float16):
        again = pcnn.tune(small_net(), [x], samples=1)
    assert all(layer.known for layer in again)


def test_gradients_of_a_tuned_network_agree() -> None:
    net, x = small_net(), cloud(3_000, 16)
    net(x).features.square().sum().backward()
    before = [p.grad.clone() for p in net.parameters()]
    pcnn.tune(net, [x], samples=1, backward=True, progress=False)
    net.zero_grad()
    net(x).features.square().sum().backward()
    for one, parameter in zip(before, net.parameters(), strict=True):
        atol = 1e-4 * float(one.abs().max())
        torch.testing.assert_close(parameter.grad, one, rtol=1e-3, atol=atol)


def test_a_tuned_network_waits_for_nothing() -> None:
    net, x = small_net(), cloud(5_000, 16)
    pcnn.tune(net, [x], samples=1, progress=False)
    with torch.no_grad():
        net(x)
        with nothing_waits():
            net(x)


def test_explain_measures_on_the_device() -> None:
    net = pcnn.models.MinkUNet42(width=0.25).cuda().half()
    explanation = pcnn.explain(net, cloud(20_000), repeats=3)
    assert all(0 < layer.ms < 50 for layer in explanation.layers)
    if "H200" in explanation.device:
        assert all(layer.floor_ms for layer in explanation.layers)
        assert all((layer.over_floor or 0) > 0.5 for layer in explanation.layers)
