"""Networks in CUDA graphs compute what they compute eagerly, on clouds of every size."""

from collections.abc import Callable
from functools import partial
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

import pcnn
from pcnn.models import MinkUNet42, ResNet18, ResUNetBN2C, SparseResNet21, SparseResNetLarge
from pcnn.ops import Engine, resolve
from pcnn.runtime import FixedTensor, GraphedNetwork
from pcnn.runtime.buckets import Edges
from pcnn.tensor import SparseTensor
from tests.clouds import surface
from tests.runtime.graphed import in_threads
from tests.tolerance import relative_rms

MODELS: dict[str, Callable[..., nn.Module]] = {
    "minkunet42": partial(MinkUNet42, width=0.25),
    "sparse_resnet21": partial(SparseResNet21, width=0.5),
    "sparse_resnet_large": partial(SparseResNetLarge, width=0.5),
    "resunet": partial(ResUNetBN2C, in_channels=4, width=0.5),
}
PAPERS = [
    ("minkunet42", resolve("spira")),
    ("minkunet42", resolve("spira", t=0)),
    ("sparse_resnet21", resolve("spira")),
    ("sparse_resnet_large", resolve("spira")),
    ("minkunet42", resolve("torchsparse")),
    ("minkunet42", resolve("minuet")),
    ("sparse_resnet_large", resolve("minuet")),
]
SIZES = [20_000, 0, 1, 2, 700, 1024, 1025, 23_000, 19_000, 60_000, 20_500]
SIZES_OF_PAPERS = [20_000, 0, 1, 700, 23_000, 60_000, 20_500]


def cloud(n: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Points on surfaces, several in many voxels of 0.1 m, and their features."""
    generator = torch.Generator().manual_seed(seed)
    jitter = torch.rand(n, 3, generator=generator)
    points = (surface(n, seed=seed) + jitter) * 0.07
    return points, torch.randn(n, 4, generator=generator)


def eagerly(net: nn.Module, points: Tensor, features: Tensor) -> list[Tensor]:
    with torch.inference_mode():
        out = net(pcnn.voxelize(points, features, voxel_size=0.1))
    return [part.features for part in ([out] if isinstance(out, SparseTensor) else out)]


def features_of(out: FixedTensor | list[FixedTensor]) -> list[Tensor]:
    return [part.features[: part.rows()] for part in ([out] if not isinstance(out, list) else out)]


def same(found: list[Tensor], wanted: list[Tensor]) -> None:
    for one, other in zip(found, wanted, strict=True):
        assert one.shape == other.shape
        scale = max(1.0, float(other.abs().max())) if len(other) else 1.0
        torch.testing.assert_close(one, other, rtol=0, atol=2e-2 * scale)


def test_edges_are_a_ratio_apart() -> None:
    edges = Edges(1000, 1.25)
    found = sorted({edges.above(n) for n in range(0, 200_000, 50)})
    assert found[0] == 1024
    assert all(n % 128 == 0 for n in found)
    assert all(a < b <= 1.25 * a + 128 for a, b in pairwise(found))
    assert all(edges.above(n) == n and edges.above(n + 1) > n for n in found)
    with pytest.raises(ValueError, match=r"1 to 1\.3 apart"):
        Edges(1000, 1.4)
    with pytest.raises(ValueError, match="hold a point"):
        Edges(0)


def test_on_a_cpu_it_runs_eagerly_and_says_so() -> None:
    net = MinkUNet42(width=0.125, engine="reference").eval()
    runner = pcnn.runtime.graph(net, voxel_size=0.1)
    points, features = cloud(300)
    out = runner(points, features)
    assert runner.reason is not None
    assert "on cpu" in runner.reason
    assert not runner.buckets
    (wanted,) = eagerly(net, points, features)
    assert torch.equal(out.features, wanted)
    assert out.rows() == len(wanted)
    x = pcnn.voxelize(points, features, voxel_size=0.1)
    assert torch.equal(out.at_points(), wanted[x.geometry.inverse])


def test_wrong_inputs_are_refused() -> None:
    net = MinkUNet42(width=0.125)
    with pytest.raises(ValueError, match=r"call model\.eval\(\)"):
        pcnn.runtime.graph(net, voxel_size=0.1)
    runner = pcnn.runtime.graph(net.eval(), voxel_size=0.1)
    points, features = cloud(30)
    with pytest.raises(ValueError, match=r"features must be \[30, C\]"):
        runner(points, features[:20])
    net.train()
    with pytest.raises(ValueError, match="switched to training"):
        runner(points, features)
    with pytest.raises(ValueError, match="reduce must be one of"):
        pcnn.runtime.graph(net.eval(), voxel_size=0.1, reduce="max")


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("model", "engine", "dtype"),
    [
        *((model, None, dtype) for model in MODELS for dtype in (torch.float16, torch.bfloat16)),
        *((model, engine, torch.float16) for model, engine in PAPERS),
    ],
    ids=lambda one: getattr(one, "name", str(one)),
)
def test_equal_to_eager(model: str, engine: Engine | None, dtype: torch.dtype) -> None:
    net = MODELS[model](engine=engine).cuda().eval()
    runner = pcnn.runtime.graph(net, voxel_size=0.1, dtype=dtype)
    half = runner._net
    for seed, n in enumerate(SIZES if engine is None else SIZES_OF_PAPERS):
        points, features = (t.cuda() for t in cloud(n, seed))
        found = features_of(runner(points, features))
        assert runner.reason is None
        with torch.inference_mode():
            x = pcnn.voxelize(points, features, voxel_size=0.1)
            out = half(x.replace(x.features.to(dtype)))
        same(found, [y.features for y in (out if isinstance(out, list) else [out])])
        assert engine is None or all(torch.isfinite(one).all() for one in found)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_sections_of_sparse_clouds_are_summed_as_eagerly(dtype: torch.dtype) -> None:
    """Rows that fill few slots of 5^3: their sums meet by atomics, in the memory of a graph too."""
    torch.manual_seed(0)
    net = SparseResNetLarge().cuda().eval()
    runner = pcnn.runtime.graph(net, voxel_size=0.1, dtype=dtype)
    extent = torch.tensor([16.0, 16.0, 3.0])
    for seed in range(6):
        generator = torch.Generator().manual_seed(seed)
        points = (torch.rand(40_000 + 500 * seed, 3, generator=generator) * extent).cuda()
        features = torch.randn(len(points), 4, generator=generator).cuda()
        found = features_of(runner(points, features))
        with torch.inference_mode():
            x = pcnn.voxelize(points, features, voxel_size=0.1)
            wanted = runner._net(x.replace(x.features.to(dtype)))
        for one, other in zip(found, wanted, strict=True):
            assert relative_rms(one, other.features) < (5e-3 if dtype == torch.float16 else 1e-5)
    assert all(room.cut for room in runner.rooms.values())


def fixed_net() -> nn.Module:
    torch.manual_seed(0)
    return MODELS["minkunet42"]().cuda().eval()


@pytest.mark.gpu
def test_rows_at_points_and_batches() -> None:
    net = fixed_net()
    runner = pcnn.runtime.graph(net, voxel_size=0.1)
    points, features = (t.cuda() for t in cloud(30_000))
    batch = (torch.arange(30_000) % 3).cuda()
    for order in (batch, batch.flip(0)):
        out = runner(points, features, order, 3)
        with torch.inference_mode():
            wanted = net(pcnn.voxelize(points, features, order, voxel_size=0.1, batch_size=3))
        same([out.at_points()], [wanted.at_points()])
        same(features_of(out), [wanted.features])
    one = runner(points.cpu().pin_memory(), features.cpu().pin_memory())
    same(features_of(one), eagerly(net, points, features))


@pytest.mark.gpu
def test_a_cloud_with_a_point_a_voxel() -> None:
    net = fixed_net()
    runner = pcnn.runtime.graph(net, voxel_size=0.1)
    points = torch.cartesian_prod(*[torch.arange(24)] * 3).float().cuda() * 0.1 + 0.05
    features = torch.randn(len(points), 4).cuda()
    same(features_of(runner(points, features)), eagerly(net, points, features))


@pytest.mark.gpu
def test_a_cloud_with_more_sites_than_the_bucket_runs_in_a_larger_one() -> None:
    net = fixed_net()
    runner = pcnn.runtime.graph(net, voxel_size=0.1)
    points, features = (t.cuda() for t in cloud(20_000))
    runner(points * 0.2, features)  # few voxels, as many points
    small = runner.buckets[0]["rows"]
    same(features_of(runner(points, features)), eagerly(net, points, features))
    assert len(runner.buckets) == 1
    large = runner.buckets[0]["rows"]
    assert all(a >= b for a, b in zip(large, small, strict=True))
    assert large[0] > small[0]
    # one site more than there is room for, at the finest level
    room = large[0]
    lattice = torch.cartesian_prod(*[torch.arange(40)] * 3)[: room + 1].float().cuda() * 0.1 + 0.05
    values = torch.randn(len(lattice), 4).cuda()
    for n in (room, room + 1):
        if runner.edges.above(n) == runner.edges.above(20_000):
            found = features_of(runner(lattice[:n], values[:n]))
            same(found, eagerly(net, lattice[:n], values[:n]))


@pytest.mark.gpu
def test_broken_points_are_named_and_the_next_call_is_right() -> None:
    net = fixed_net()
    runner = pcnn.runtime.graph(net, voxel_size=0.1)
    points, features = (t.cuda() for t in cloud(5_000))
    runner(points, features)
    broken = points.clone()
    broken[77, 1] = torch.nan
    with pytest.raises(ValueError, match="1 of 5000 points are NaN"):
        runner(broken, features)
    far = points.clone()
    far[3, 0] = 1e7
    with pytest.raises(ValueError, match=r"x leaves -131072\.\.131071"):
        runner(far, features)
    same(features_of(runner(points, features)), eagerly(net, points, features))


@pytest.mark.gpu
def test_changed_weights_are_seen() -> None:
    net = fixed_net()
    runner = pcnn.runtime.graph(net, voxel_size=0.1)
    points, features = (t.cuda() for t in cloud(5_000))
    before = features_of(runner(points, features))
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(1.1)
    after = features_of(runner(points, features))
    assert not torch.equal(before[0], after[0])
    same(after, eagerly(net, points, features))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [None, torch.float16])
def test_switching_the_network_back_and_forth_changes_nothing(dtype: torch.dtype | None) -> None:
    """Training mode drops the folded norms, whose memory others take then."""
    net = fixed_net()
    runner = pcnn.runtime.graph(net, voxel_size=0.1, dtype=dtype)
    points, features = (t.cuda() for t in cloud(5_000))
    before = features_of(runner(points, features))
    net.train()
    net.eval()
    taken = [torch.full((2**k,), torch.nan, device="cuda") for k in range(6, 14) for _ in range(64)]
    same(features_of(runner(points, features)), before)
    assert taken


@pytest.mark.gpu
def test_threads_and_streams_share_a_runner() -> None:
    net = fixed_net()
    runner = pcnn.runtime.graph(net, voxel_size=0.1)
    clouds = [tuple(t.cuda() for t in cloud(9_000 + 500 * seed, seed)) for seed in range(6)]
    wanted = [eagerly(net, *one) for one in clouds]
    torch.cuda.synchronize()
    in_threads(6, lambda number: same(features_of(runner(*clouds[number])), wanted[number]))


@pytest.mark.gpu
def test_buckets_are_bounded_and_captured_ahead() -> None:
    runner = GraphedNetwork(fixed_net(), 0.1, most=3)
    points, features = (t.cuda() for t in cloud(12_000))
    runner.warmup(points, features, sizes=[6_000, 9_000])
    assert [found["points"] for found in runner.buckets] == sorted(
        runner.edges.above(n) for n in (6_000, 9_000, 12_000)
    )
    before = runner.buckets
    for n in (6_000, 9_000, 12_000):
        same(
            features_of(runner(points[:n], features[:n])),
            eagerly(runner.model, points[:n], features[:n]),
        )
    assert [found["points"] for found in runner.buckets] == [found["points"] for found in before]
    runner(points[:2_000], features[:2_000])
    assert len(runner.buckets) == 3


@pytest.mark.gpu
def test_memory_stays_flat() -> None:
    runner = pcnn.runtime.graph(fixed_net(), voxel_size=0.1)
    points, features = (t.cuda() for t in cloud(9_000))
    for _ in range(100):
        runner(points, features)
    torch.cuda.synchronize()
    reserved = torch.cuda.memory_reserved()
    for _ in range(900):
        runner(points, features)
    torch.cuda.synchronize()
    assert torch.cuda.memory_reserved() == reserved


@pytest.mark.gpu
def test_what_waits_runs_eagerly_with_a_reason() -> None:
    points, features = (t.cuda() for t in cloud(3_000))
    net = MinkUNet42(width=0.125, engine="reference").cuda().eval()
    runner = pcnn.runtime.graph(net, voxel_size=0.1)
    with pytest.warns(UserWarning, match="for one map after another"):
        out = runner(points, features)
    assert runner.reason is not None
    same(features_of(out), eagerly(net, points, features))


@pytest.mark.gpu
@pytest.mark.parametrize(
    "engine",
    [resolve("spira", t=3), resolve("minuet"), resolve("torchsparse")],
    ids=lambda engine: engine.name,
)
def test_a_cloud_with_more_pairs_than_the_bucket_runs_in_a_larger_one(engine: Engine) -> None:
    net = MODELS["minkunet42"](engine=engine).cuda().eval()
    runner = pcnn.runtime.graph(net, voxel_size=0.1)
    lattice = torch.cartesian_prod(*[torch.arange(27)] * 3).float().cuda() * 0.1 + 0.05
    apart = torch.rand(len(lattice), 3, device="cuda") * torch.tensor([40.0, 40, 4]).cuda()
    features = torch.randn(len(lattice), 4).cuda()
    same(features_of(runner(apart, features)), eagerly(net, apart, features))
    (few,) = runner.rooms.values()
    same(features_of(runner(lattice, features)), eagerly(net, lattice, features))
    (many,) = runner.rooms.values()
    assert runner.reason is None
    assert many.sizes.rows[0] == few.sizes.rows[0]
    assert many.sizes.pairs[0] > few.sizes.pairs[0]
    same(features_of(runner(apart, features)), eagerly(net, apart, features))
    assert list(runner.rooms.values()) == [many]


@pytest.mark.gpu
def test_a_network_that_pools_is_captured_too() -> None:
    torch.manual_seed(0)
    net = ResNet18(width=0.25).cuda().eval()
    runner = pcnn.runtime.graph(net, voxel_size=0.1)
    for n in (12_000, 12_500, 700, 1, 0):
        points, features = (t.cuda() for t in cloud(n, n))
        batch = torch.arange(n).cuda() % 3
        found = runner(points, features, batch, 3)
        assert runner.reason is None
        with torch.inference_mode():
            wanted = net(pcnn.voxelize(points, features, batch, voxel_size=0.1, batch_size=3))
        same([found], [wanted])
