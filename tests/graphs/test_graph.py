"""Networks in CUDA graphs compute what they compute eagerly, on inputs of every kind and size."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

import pcnn
from pcnn.graphs.fixed_input import Edges, FixedInput
from pcnn.graphs.graph import GraphedNetwork
from pcnn.graphs.memory import CloudMemory
from pcnn.models import MinkUNet42, ResNet18, ResUNetBN2C, SparseResNet21, SparseResNetLarge
from pcnn.tensor import SparseTensor
from tests.clouds import surface
from tests.graphs.graphed import KERNELS, in_threads, rerun, tensors
from tests.tolerance import LIKE_EAGER, relative_rms

MODELS: dict[str, Callable[..., Any]] = {
    "minkunet42": partial(MinkUNet42, width=0.25),
    "sparse_resnet21": partial(SparseResNet21, width=0.5),
    "sparse_resnet_large": partial(SparseResNetLarge, width=0.5),
    "resunet": partial(ResUNetBN2C, in_channels=4, width=0.5),
    "resnet18": partial(ResNet18, width=0.25),
}
SIZES = [20_000, 19_500, 20_100, 20_000, 0, 1, 2, 700, 1024, 1025, 23_000, 60_000, 20_500, 20_300]
#: Inputs: points that become voxels in the graph, and voxels and native points as they are.
KINDS = ("clouds", "voxels", "points")
BOUNDS = {**LIKE_EAGER, torch.float64: LIKE_EAGER[torch.float32]}
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def places(n: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Points on surfaces, several in many voxels of 0.1 m, and their features."""
    draw = torch.Generator().manual_seed(seed)
    points = (surface(n, seed=seed) + torch.rand(n, 3, generator=draw)) * 0.07
    return points.to(DEVICE), torch.randn(n, 4, generator=draw).to(DEVICE)


def tensor(kind: str, points: Tensor, features: Tensor) -> SparseTensor:
    make = pcnn.native_points if kind == "points" else pcnn.voxelize
    return make(points, features, voxel_size=0.1, batch_size=1)


def given(kind: str, points: Tensor, features: Tensor) -> tuple[Any, ...]:
    return (points, features) if kind == "clouds" else (tensor(kind, points, features),)


def same(found: Any, wanted: Any, dtype: torch.dtype = torch.float32) -> None:
    for one, other in zip(tensors(found), tensors(wanted), strict=True):
        assert one.shape == other.shape
        assert not len(other) or relative_rms(one, other) < BOUNDS[dtype]


def network(name: str = "minkunet42", **options: Any) -> Any:
    torch.manual_seed(0)
    return MODELS[name](**options).to(DEVICE).eval()


def graphed(kind: str, net: Any, **options: Any) -> Any:
    return GraphedNetwork(net, 0.1, **options) if kind == "clouds" else net


def check(
    run: Any, kind: str, points: Tensor, features: Tensor, bound: torch.dtype | None = None
) -> Any:
    """Hold a call to the network without graphs, as far as a dtype explains."""
    with torch.inference_mode():
        found = run(*given(kind, points, features))
    is_made = isinstance(run, GraphedNetwork)
    assert (run.reason if is_made else run.graphs_reason) is None
    dtype, net = (run.dtype or torch.float32, run.net) if is_made else (torch.float32, run)
    x = tensor(kind, points, features)
    with torch.inference_mode():
        net.graphs = False
        wanted = net(x.replace(x.features.to(dtype)))
        net.graphs = True
    dtype = bound or dtype
    same(found, wanted, dtype)
    one = tensors(found)[0]
    if isinstance(found, SparseTensor) and one.shape[0]:
        assert found.at_points().shape[0] == wanted.at_points().shape[0]
        assert torch.equal(found.coords, wanted.coords)
        same(found.at_points(), wanted.at_points(), dtype)
    return found


def test_what_is_not_captured_runs_eagerly_and_says_so() -> None:
    net = MinkUNet42(width=0.125).eval()
    points, features = torch.rand(300, 3), torch.rand(300, 4)
    with torch.inference_mode():
        wanted = net(tensor("clouds", points, features))
    run = pcnn.runtime.graph(net, voxel_size=0.1)
    with pytest.warns(UserWarning, match="runs without CUDA graphs"):
        found = run(points, features)
    assert run.reason is not None
    assert not run.places
    assert torch.equal(found.features, wanted.features)
    assert torch.equal(found.at_points(), wanted.at_points())
    for wrong, error in (({"reduce": "max"}, ValueError), ({"voxel_size": -1.0}, ValueError)):
        with pytest.raises(error):
            pcnn.runtime.graph(net, **{"voxel_size": 0.1, **wrong})
    with pytest.raises(ValueError, match=r"features must be \[300, C\]"):
        run(points, features[:20])
    net.train()
    for call in (lambda: run(points, features), lambda: pcnn.runtime.graph(net, 0.1)):
        with pytest.raises(ValueError, match=r"call model\.eval\(\)"):
            call()


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize(("model", "memory"), [(MinkUNet42, CloudMemory), (ResNet18, FixedInput)])
def test_a_cloud_is_voxelized_in_its_graph_and_changed_weights_are_seen(
    model: Any, memory: type
) -> None:
    """Where a pooling has to know the number of triplets, before its graph."""
    net = model(width=0.125, engine=KERNELS).eval()
    run = GraphedNetwork(net, 0.1, torch.float64, edges=Edges(128, 1.3), capture=rerun)
    points, features = places(100)
    for turn in range(2):
        for n in (100, 100, 90):
            found = check(run, "clouds", points[:n], features[:n])
        assert run.replays == 2 * turn + 2
        assert isinstance(next(iter(run.places.values())).memory, memory)
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.mul_(1.1)
        changed = run(points[:90], features[:90])
        assert not torch.equal(tensors(found)[0], tensors(changed)[0])
        with torch.inference_mode():
            wanted = net(tensor("clouds", points[:90], features[:90]))
        same(tensors(changed)[0].float(), wanted)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cast", [None, torch.float16], ids=str)
@pytest.mark.parametrize("model", MODELS)
def test_equal_to_eager(model: str, cast: torch.dtype | None, kind: str) -> None:
    """Outputs are the eager ones', and no later call writes to them."""
    net, own = network(model), {"dtype": cast} if kind == "clouds" else {}
    run, kept = graphed(kind, net, **own), []
    half = cast is not None and kind != "clouds"
    for seed, n in enumerate(SIZES):
        with torch.autocast("cuda", cast or torch.float16, half):
            found = check(run, kind, *places(n, seed), cast or torch.float32)
        kept.append((found, [one.clone() for one in tensors(found)]))
    assert (run if kind == "clouds" else net._graphs).replays >= 2
    for output, before in kept:
        assert all(map(torch.equal, tensors(output), before))


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
def test_what_does_not_fit_gets_memory_that_holds_both(kind: str) -> None:
    net = network()
    run = graphed(kind, net)
    lattice = torch.cartesian_prod(*[torch.arange(27)] * 3).float().to(DEVICE) * 0.1 + 0.05
    apart = torch.rand(len(lattice), 3, device=DEVICE) * torch.tensor([40.0, 40, 4]).to(DEVICE)
    features = torch.randn(len(lattice), 4).to(DEVICE)
    for points in (lattice, lattice, lattice, apart, lattice, apart, lattice):
        check(run, kind, points, features)
    assert (run if kind == "clouds" else net._graphs).places


@pytest.mark.gpu
def test_broken_points_are_named_and_the_next_call_is_right() -> None:
    run = graphed("clouds", network())
    points, features = places(5_000)
    run(points, features)
    broken = points.clone()
    broken[77, 1] = torch.nan
    with pytest.raises(ValueError, match="1 of 5000 points are NaN"):
        run(broken, features)
    far = points.clone()
    far[3, 0] = 1e7
    with pytest.raises(ValueError, match=r"x leaves -131072\.\.131071"):
        run(far, features)
    check(run, "clouds", points, features)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [None, torch.float16])
def test_switching_the_network_back_and_forth_changes_nothing(dtype: torch.dtype | None) -> None:
    """Training mode drops the folded norms, whose memory others take then."""
    net = network()
    run = graphed("clouds", net, dtype=dtype)
    points, features = places(5_000)
    before = run(points, features)
    net.train()
    net.eval()
    taken = [torch.full((2**k,), torch.nan, device="cuda") for k in range(6, 14) for _ in range(64)]
    same(run(points, features), before, dtype or torch.float32)
    assert taken


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
def test_threads_and_streams_share_a_network(kind: str) -> None:
    net = network("resunet")
    run = graphed(kind, net)
    clouds = [places(9_000 + 500 * seed, seed) for seed in range(6)]
    net.graphs = False
    with torch.inference_mode():
        wanted = [net(tensor(kind, *one)).features for one in clouds]
    net.graphs = True
    torch.cuda.synchronize()

    def call(number: int) -> None:
        with torch.inference_mode():
            same(run(*given(kind, *clouds[number])), wanted[number])

    in_threads(6, call)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
def test_memory_is_bounded_and_stays_flat(kind: str) -> None:
    run = graphed(kind, network(), **({"most": 2} if kind == "clouds" else {}))
    clouds = [places(n) for n in (9_000, 12_000)]
    held = []
    for turns in (40, 200):
        for _ in range(turns):
            for one in clouds:
                with torch.no_grad():
                    run(*given(kind, *one))
        torch.cuda.synchronize()
        held.append(torch.cuda.memory_reserved())
    assert held[1] <= 1.02 * held[0]
    if kind == "clouds":
        run(*given(kind, *places(3_000)))
        assert len(run.places) == 2


@pytest.mark.multigpu
@pytest.mark.parametrize("kind", KINDS)
def test_devices_other_than_the_current_one(kind: str) -> None:
    for index in (0, 1):
        net = network().to(f"cuda:{index}")
        run = graphed(kind, net)
        for seed in (1, 1, 1, 1, 2, 3):
            points, features = (one.to(f"cuda:{index}") for one in places(3000, seed))
            check(run, kind, points, features)
        assert (run if kind == "clouds" else net._graphs).replays
