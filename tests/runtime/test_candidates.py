import itertools

import pytest
import torch

from pcnn.dataflows import Blocked, Reference
from pcnn.dataflows.products import PRODUCTS
from pcnn.dataflows.row_stationary import RowStationary
from pcnn.dataflows.settings import dataflow_of, settings_of
from pcnn.dataflows.tuning_table import Bucket, Choice
from pcnn.geometry import Kernel, KernelMap
from pcnn.maps import SortedSearch
from pcnn.ops.conformance_cases import random_map
from pcnn.ops.convolution import convolution
from pcnn.runtime import candidates as module
from pcnn.runtime.candidates import (
    RELATIVE_RMS,
    Outcome,
    compare,
    default_candidates,
    disagreement,
    groups_of,
    mean_bucket,
)
from pcnn.runtime.layer_calls import LayerCall, LayerProduct
from tests.clouds import dense_grid, surface_grid
from tests.runtime.flawed import Slow, SlowElsewhere, Wrong

FLAWS = ("zeros", "nan", "shape", "raises")


def kernel_map(size: int = 3, stride: int = 1, n: int = 120) -> KernelMap:
    grid, kernel = surface_grid(n), Kernel.of(size, stride)
    return SortedSearch().build(grid, grid.strided(kernel), kernel)


def call(size: int = 3, stride: int = 1, groups: int = 1, **kwargs: int) -> LayerCall:
    return LayerCall(kernel_map(size, stride, **kwargs), 4, 6, groups, torch.float32)


@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("flaw", FLAWS)
def test_a_wrong_dataflow_loses_however_quick(product: str, flaw: str) -> None:
    candidates = [Wrong(flaw=flaw), Slow()]
    outcome = compare([call()], product, candidates, repeats=2)
    assert list(outcome.ms) == [Slow()]
    assert outcome.refused[candidates[0]]


@pytest.mark.parametrize("product", PRODUCTS)
def test_a_slow_right_dataflow_loses_to_a_quick_right_one(product: str) -> None:
    outcome = compare([call(), call(n=150)], product, [Slow(), Reference()], repeats=2)
    assert outcome.choices()[0].dataflow == Reference()
    assert outcome.refused == {Slow(): None}
    # the only one that reads these layouts is no winner, but may be needed beside another product
    outcome = compare([call()], product, [SlowElsewhere(), Reference()], repeats=2)
    assert [choice.dataflow for choice in outcome.choices()] == [Reference(), SlowElsewhere()]


def test_no_right_candidate_is_an_error_that_says_why() -> None:
    flawed = [Wrong(name="one", flaw="nan"), Wrong(name="two", flaw="raises")]
    with pytest.raises(RuntimeError, match=r"one: is not finite; two: CompilerError: out of"):
        compare([call()], "forward", flawed)


def test_a_candidate_must_be_right_on_every_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    class SmallOnly(Reference):
        def forward(self, x: torch.Tensor, *args: object) -> torch.Tensor:
            out = super().forward(x, *args)  # type: ignore[arg-type]
            return out if x.shape[0] < 100 else out * 1.01

    small = SmallOnly(name="small_only")
    outcome = compare([call(n=60), call(n=300)], "forward", [small, Reference()], repeats=1)
    assert list(outcome.ms) == [Reference()]

    # nor does it win by having sent the right one away: whatever the clock says
    times = itertools.cycle([1.0, 9.0])
    monkeypatch.setattr(module, "device_ms", lambda *_, **__: next(times))
    outcome = compare([call(n=60), call(n=300)], "forward", [small, Reference()], repeats=1)
    assert list(outcome.ms) == [Reference()]
    assert list(outcome.refused) == [small]


@pytest.mark.parametrize(("size", "stride"), [(3, 1), (2, 2), (3, 2)])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("flip", [False, True], ids=["forward map", "transposed map"])
def test_products_are_those_of_a_layer(size: int, stride: int, groups: int, flip: bool) -> None:
    built = kernel_map(size, stride)
    own = LayerCall(built.transpose() if flip else built, 4, 6, groups, torch.float64)
    forward, transposed, vvor = (LayerProduct(own, name) for name in PRODUCTS)
    x = forward.x.clone().requires_grad_()
    weight = forward.other.clone().requires_grad_()
    out = convolution(x, weight, own.kernel_map, Reference(), groups=groups)
    torch.testing.assert_close(forward.truth, out.detach())
    assert (forward.x.shape[0], out.shape[0]) == (own.kernel_map.n_in, own.kernel_map.n_out)
    grad_x, _ = torch.autograd.grad(out, (x, weight), transposed.x, retain_graph=True)
    # the gradient is linear in the weights, and both products draw the same shape of them
    scaled = convolution(x, transposed.other, own.kernel_map, Reference(), groups=groups)
    (grad_x,) = torch.autograd.grad(scaled, x, transposed.x)
    torch.testing.assert_close(transposed.truth, grad_x)
    out = convolution(vvor.x, weight, own.kernel_map, Reference(), groups=groups)
    (grad_weight,) = torch.autograd.grad(out, weight, vvor.other)
    torch.testing.assert_close(vvor.truth, grad_weight)
    for product in (forward, transposed, vvor):
        torch.testing.assert_close(product.prepared(Blocked())(), product.truth)


def test_sizes_are_those_of_each_product() -> None:
    own = call(2, 2)
    built = own.kernel_map
    assert built.n_in > built.n_out
    assert own.rows("transposed") == built.n_in
    assert own.rows("forward") == own.rows("vvor") == built.n_out
    assert own.pairs_per_row("transposed") == 1.0
    assert own.signature("vvor").product == "vvor"
    assert own.signature("forward").volume == 8
    dense = dense_grid(8)
    kernel = Kernel.of(2, 2)
    map_ = SortedSearch().build(dense, dense.strided(kernel), kernel)
    halved = LayerCall(map_, 4, 6, 1, torch.float32)
    assert mean_bucket([halved], "forward") == Bucket(6, 3.0)
    assert mean_bucket([halved], "transposed") == Bucket(9, 0.0)


def test_equal_layers_are_measured_once() -> None:
    first, other = call(), call(2, 2)
    twin = LayerCall(first.kernel_map, 4, 6, 1, torch.float32)
    calls = {"a": [first], "b": [other], "c": [twin]}
    assert list(groups_of(calls)) == [["a", "c"], ["b"]]


def test_choices_are_the_best_of_each_set_of_layouts() -> None:
    one, two = Reference(name="one"), Reference(name="two")
    outcome = Outcome({one: 3.0, two: 2.0, Blocked(): 4.0})
    assert outcome.choices() == (Choice(two, 2.0), Choice(Blocked(), 4.0))


def test_inference_times_what_follows_the_product_too() -> None:
    own = call()
    product = LayerProduct(own, "forward", inference=True)
    plain = LayerProduct(own, "forward").truth
    torch.testing.assert_close(product.truth, product.epilogue.apply(plain))
    for dataflow in (Reference(), Blocked(), Reference(name="apart", fuses=False)):
        torch.testing.assert_close(product.prepared(dataflow)(), product.truth.float())
    assert LayerProduct(own, "vvor", inference=True).epilogue is None
    assert list(compare([own], "forward", [Wrong(), Reference()], inference=True).ms) == [
        Reference()
    ]


def wide_call(dtype: torch.dtype = torch.float16) -> LayerCall:
    return LayerCall(kernel_map(n=100), 32, 48, 1, dtype)


@pytest.fixture
def on_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LayerCall, "device", torch.device("cuda:0"))


def test_a_cpu_has_one_candidate_and_float64_the_reference(
    request: pytest.FixtureRequest,
) -> None:
    for product in PRODUCTS:
        assert default_candidates(wide_call(), product) == (Blocked(),)
    request.getfixturevalue("on_gpu")
    assert default_candidates(wide_call(torch.float64), "forward") == (Reference(),)


@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("reproducible", [False, True])
@pytest.mark.usefixtures("on_gpu")
def test_candidates_of_a_gpu(product: str, reproducible: bool) -> None:
    found = default_candidates(wide_call(), product, reproducible)
    assert len(found) > 1 or product == "vvor"
    assert len({one.name for one in found}) == len(found)
    assert all(dataflow_of(settings_of(one)) == one for one in found)
    if reproducible:
        assert all(one.deterministic for one in found)


@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("reproducible", [False, True])
@pytest.mark.usefixtures("on_gpu")
def test_maps_whose_slots_hold_several_inputs(product: str, reproducible: bool) -> None:
    shared = LayerCall(random_map(20, 30, 27, 200), 32, 48, 1, torch.float16)
    found = default_candidates(shared, product, reproducible)
    assert RowStationary() in found
    assert all(one.deterministic or not reproducible for one in found)
    for one in found:  # none of them asks for a table
        for side in (shared.kernel_map, shared.kernel_map.transpose()):
            side.layouts((*one.needs, *one.needs_weight_grad))


DTYPES = list(RELATIVE_RMS)


def held(dtype: str) -> torch.dtype:
    """The dtype in which products of rounded operands are stored."""
    return getattr(torch, "float32" if dtype == "tf32" else dtype)  # type: ignore[no-any-return]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_one_rounding_is_explained_and_ten_bounds_are_not(dtype: str) -> None:
    truth = torch.randn(500, 7, dtype=torch.float64)
    assert disagreement(truth.to(held(dtype)), truth, dtype) is None
    off = truth + 10 * RELATIVE_RMS[dtype] * torch.randn_like(truth)
    assert "is off by" in str(disagreement(off, truth, dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_one_wrong_element_is_found(dtype: str) -> None:
    truth = torch.randn(100_000, dtype=torch.float64)
    result = truth.to(held(dtype), copy=True)
    result[123] += 100 * RELATIVE_RMS[dtype]
    assert disagreement(result, truth, dtype) is not None


def test_shapes_and_values_that_are_none() -> None:
    truth = torch.randn(5, 3, dtype=torch.float64)
    assert disagreement(truth[:4], truth, "float64") == "has the shape (4, 3) instead of (5, 3)"
    assert disagreement(truth * torch.nan, truth, "float64") == "is not finite"
    assert disagreement(truth[:0], truth[:0], "float64") is None


def test_long_sums_may_be_further_off() -> None:
    truth = torch.randn(1000, dtype=torch.float64)
    off = truth * (1 + 4e-6)
    assert disagreement(off, truth, "float32")
    assert disagreement(off, truth, "float32", terms=1_000_000) is None
    assert disagreement(off, truth, "float64", terms=1_000_000)
