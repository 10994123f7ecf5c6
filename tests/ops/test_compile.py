"""torch.compile on planned input: one graph, few compilations, the values of eager calls."""

import copy
from collections.abc import Callable, Iterator
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters

import pcnn
from pcnn.bench.networks.rounding import Rounded
from pcnn.bench.verify import GRADIENT, OUTPUT, bound_of, rms
from pcnn.dataflows import Dataflow, Reference
from pcnn.maps import SortedSearch
from pcnn.models import MinkUNet42, SparseResNet21
from pcnn.runtime.layer_calls import convolutions
from tests.clouds import surface_grid

#: The compiler takes sizes of zero and one for constants: each asks for a graph of its own.
SIZES = (600, 500, 0, 1, 2, 300, 900)
MOST_GRAPHS = 4
#: Clouds whose coarsest level has hundreds of rows: norms over few rows turn roundings into signs.
LARGE = (40_000, 30_000, 60_000)
#: On a GPU, numbers of tiles that are equal by chance in the first cloud are taken for one; a
#: second graph knows better.
MOST_LARGE_GRAPHS = 2

MODELS: dict[str, Callable[[], nn.Module]] = {
    "minkunet42": partial(MinkUNet42, width=0.125),
    "sparse_resnet21": partial(SparseResNet21, width=0.25),
}


@pytest.fixture(autouse=True)
def fresh_compiler() -> None:
    torch._dynamo.reset()
    counters.clear()


def features_of(out: object) -> list[Tensor]:
    parts = out if isinstance(out, list | tuple) else [out]
    return [part.features if isinstance(part, pcnn.SparseTensor) else part for part in parts]


def run_all(
    make: Callable[[], nn.Module],
    training: bool,
    backend: str,
    device: str = "cpu",
    sizes: tuple[int, ...] = SIZES,
    dtype: torch.dtype = torch.float64,
) -> int:
    """Compiled and eager calls on clouds of all sizes; the number of graphs.

    In float64 both give the same values, to the order of additions. In float32 the compiled network
    is held to float64 as far as its eager twin, or errors of its products at their bound, explain.
    """
    net = make().to(device, dtype).train(training)
    twin = copy.deepcopy(net)
    compiled = torch.compile(net, fullgraph=True, dynamic=True, backend=backend)
    planner = pcnn.Planner(net)
    exact = dtype == torch.float64
    wide = [] if exact else [in_float64(net, Reference())]
    wide += [] if exact else [in_float64(net, Rounded(error=bound_of("float32"))) for _ in range(2)]
    for seed, n in enumerate(sizes):
        grid = surface_grid(n, batch_size=2, seed=seed).to(device)
        planner(grid, backward=training)
        x = torch.randn(grid.rows, 4, dtype=dtype, device=device)
        with torch.set_grad_enabled(training):
            found = features_of(compiled(pcnn.SparseTensor(x, grid)))
            wanted = features_of(twin(pcnn.SparseTensor(x, grid)))
            again = surface_grid(n, batch_size=2, seed=seed).to(device)
            others = [features_of(one(pcnn.SparseTensor(x.double(), again))) for one in wide]
        about = f"{grid.rows} voxels, output"
        compare(found, wanted, others, OUTPUT, [f"{about} {k}" for k in range(len(found))])
        if training:
            outs = [found, wanted, *others]
            grads = [gradients(*pair) for pair in zip((net, twin, *wide), outs, strict=True)]
            about = f"{grid.rows} voxels, gradient of"
            names = [f"{about} {name}" for name, p in net.named_parameters() if p.grad is not None]
            compare(grads[0], grads[1], grads[2:], GRADIENT, names)
    return int(counters["stats"]["unique_graphs"])


def in_float64(net: nn.Module, dataflow: Dataflow) -> nn.Module:
    """A copy of a network in float64, all its products by one dataflow."""
    copied = copy.deepcopy(net).double()
    for layer in convolutions(copied).values():
        layer.engine = pcnn.ops.Engine(dataflow.name, SortedSearch(), dataflow)
    return copied


def gradients(model: nn.Module, outs: list[Tensor]) -> list[Tensor]:
    model.zero_grad()
    torch.stack([out.square().sum() for out in outs]).sum().backward()
    return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


@torch.no_grad()
def compare(
    found: list[Tensor],
    wanted: list[Tensor],
    others: list[list[Tensor]],
    factor: float,
    names: list[str],
) -> None:
    """Equal values; where there are others, truth and products at their bound, errors near these.

    See `pcnn.bench.verify`, whose factors these are. A failure counts and names them all.
    """
    wrong = []
    for number, (name, one, other) in enumerate(zip(names, found, wanted, strict=True)):
        assert one.shape == other.shape
        scale = max(1.0, float(other.abs().max())) if other.numel() else 1.0  # of long sums
        if not others:
            torch.testing.assert_close(one / scale, other / scale, rtol=1e-9, atol=1e-9)
            continue
        truth, *rounded = (tensors[number] for tensors in others)
        errors = [rms(tensor.double() - truth) for tensor in (one, other, *rounded)]
        bound = factor * max(*errors[1:], bound_of("float32") * rms(truth))
        if not errors[0] <= bound:
            eager, *products = (f"{error:.2e}" for error in errors[1:])
            wrong.append(
                f"{name} {list(one.shape)}: off by {errors[0]:.2e} (RMS) at a scale of "
                f"{rms(truth):.2e}, bound {bound:.2e}; eager {eager}, products {products}"
            )
    assert not wrong, f"{len(wrong)} of {len(found)} are off: " + "; ".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("model", MODELS)
def test_networks_compile_whole_and_for_clouds_of_every_size(model: str, training: bool) -> None:
    assert run_all(MODELS[model], training, "aot_eager") <= MOST_GRAPHS


@pytest.mark.slow  # a minute, and a quarter of one
@pytest.mark.parametrize(("model", "training"), [("minkunet42", False), ("sparse_resnet21", True)])
def test_one_graph_serves_clouds_of_many_sizes(model: str, training: bool) -> None:
    assert run_all(MODELS[model], training, "aot_eager", sizes=(2000, 1500, 3000, 800)) == 1


@pytest.mark.slow
def test_float32_is_held_to_float64() -> None:
    sizes = (500, 700)
    assert run_all(MODELS["sparse_resnet21"], True, "aot_eager", "cpu", sizes, torch.float32) == 1


def test_a_result_further_off_than_products_explain_is_found() -> None:
    truth = torch.randn(200).double()
    near = truth * (1 + 2e-6)
    compare([near.float()], [truth.float()], [[truth], [near]], OUTPUT, ["out"])
    with pytest.raises(AssertionError, match=r"1 of 1 are off: out \[200\]: off by .* bound"):
        compare([1.001 * near.float()], [truth.float()], [[truth], [near]], OUTPUT, ["out"])


def test_layers_compile_for_clouds_of_every_size() -> None:
    assert run_all(two_layers, True, "aot_eager") <= MOST_GRAPHS


def two_layers() -> nn.Module:
    return pcnn.nn.Sequential(
        pcnn.nn.Conv3d(4, 8, 3, 2), nn.BatchNorm1d(8), nn.ReLU(), pcnn.nn.Conv3d(8, 8, 3)
    )


@pytest.mark.slow  # needs a C++ compiler, and its time
@pytest.mark.parametrize("training", [False, True])
def test_generated_code_computes_the_same(training: bool) -> None:
    assert run_all(two_layers, training, "inductor") <= MOST_GRAPHS


def two_levels() -> nn.Module:
    """No layout that its convolutions read has as many rows as the coarsest level."""
    return pcnn.nn.Sequential(
        pcnn.nn.Conv3d(4, 8, 2, 2), pcnn.nn.Conv3d(8, 8, 2, 2), pcnn.nn.Conv3d(8, 8, 3)
    )


@pytest.mark.slow  # needs a C++ compiler
@pytest.mark.parametrize("training", [False, True])
def test_generated_code_knows_the_rows_of_every_level(training: bool) -> None:
    assert run_all(two_levels, training, "inductor", sizes=(500, 700)) == 1


def test_input_that_was_not_planned_is_named() -> None:
    compiled = torch.compile(two_layers().eval(), fullgraph=True, dynamic=True, backend="eager")
    grid = surface_grid(300)
    grid.strided(pcnn.Kernel.of(3, 2))
    with torch.no_grad(), pytest.raises(Exception, match=r"pcnn\.plan\(model, geometry\)"):
        compiled(pcnn.SparseTensor(torch.randn(grid.rows, 4), grid))


@pytest.fixture
def told_recompilations() -> Iterator[None]:
    """A failure shows why a graph did not serve."""
    torch._logging.set_logs(recompiles=True)
    yield
    torch._logging.set_logs()


@pytest.mark.gpu
@pytest.mark.long
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("model", MODELS)
def test_networks_compile_on_a_gpu(model: str, training: bool, told_recompilations: None) -> None:
    graphs = run_all(MODELS[model], training, "inductor", "cuda", LARGE, torch.float32)
    assert graphs <= MOST_LARGE_GRAPHS


@pytest.mark.gpu
@pytest.mark.long
@pytest.mark.parametrize("make", [two_layers, two_levels])
@pytest.mark.parametrize("training", [False, True])
def test_layers_compile_for_the_smallest_clouds_on_a_gpu(
    make: Callable[[], nn.Module], training: bool, told_recompilations: None
) -> None:
    sizes = (20_000, 0, 1, 2, 30_000)
    graphs = run_all(make, training, "inductor", "cuda", sizes)
    assert graphs <= MOST_GRAPHS + MOST_LARGE_GRAPHS - 1
