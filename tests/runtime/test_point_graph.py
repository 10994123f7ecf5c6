"""Networks on native points in graphs compute what they compute eagerly, for every size."""

from __future__ import annotations

import gc
import warnings
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import pcnn
from pcnn.models import ResUNetBN2C
from pcnn.models.blocks import ConvNorm
from pcnn.nn import Conv3d
from pcnn.ops import resolve
from pcnn.runtime import GraphedPoints
from pcnn.runtime.buckets import Edges
from pcnn.runtime.capture import Figures, failure_of
from pcnn.tensor import SparseTensor
from tests.runtime.graphed import ROWS, points, rerun

EDGES = Edges(128, 1.3)


class Branches(nn.Module):
    """Outputs of every kind: on points, on a level, of whole clouds; two of them the same."""

    def __init__(self, engine: Any = ROWS) -> None:
        super().__init__()
        self.stem, self.down = Conv3d(2, 4, 3, engine=engine), Conv3d(4, 4, 3, 2, engine=engine)
        self.whole = pcnn.nn.GlobalMaxPool()

    def forward(self, x: SparseTensor) -> dict[str, Any]:
        fine = self.stem(x)
        low = self.down(fine)
        return {"levels": [fine, low], "again": (low,), "whole": self.whole(low), "name": "net"}


def made(make: Any = None) -> Any:
    torch.manual_seed(0)
    make = make or (lambda: ResUNetBN2C(2, 3, 3, True, 0.125, ROWS))
    return make().double().eval()


def graphed(net: nn.Module, **options: Any) -> GraphedPoints:
    return GraphedPoints(net, edges=EDGES, capture=rerun, **options)


def close(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)


def test_equal_to_eager_for_clouds_of_every_size() -> None:
    net = made()
    run = graphed(net)
    for number, seed in ((230, 1), (250, 2), (0, 3), (1, 4), (120, 5), (200, 1), (230, 1)):
        x, _ = points(number, seed)
        with torch.inference_mode():
            wanted = net(points(number, seed)[0])
        found = run(x)
        assert found.geometry is x.geometry
        close(found.features, wanted.features)
        close(found.at_points(), wanted.at_points())
    assert run.reason is None
    # one point is one in its cell, which is another kind of points
    assert [bucket["points"] for bucket in run.buckets] == [128, 128, 256]
    assert all(bucket["clouds"] == 2 for bucket in run.buckets)


def test_outputs_are_put_back_together() -> None:
    net = made(Branches)
    run = graphed(net)
    for seed in (1, 2):
        x, _ = points(230, seed)
        found = run(x)
        with torch.inference_mode():
            wanted = net(points(230, seed)[0])
        for one, other in zip(found["levels"], wanted["levels"], strict=True):
            close(one.features, other.features)
            close(one.at_points(), other.at_points())
        close(found["again"][0].features, wanted["again"][0].features)
        close(found["whole"], wanted["whole"])
        assert found["name"] == "net"


def test_a_cloud_that_does_not_fit_gets_memory_that_holds_both() -> None:
    net = made()
    run = graphed(net)
    run(points(230, 1)[0])
    (small,) = run.buckets
    x, _ = points(230, 1, cell=0.4)
    with torch.inference_mode():
        wanted = net(points(230, 1, cell=0.4)[0])
    close(run(x).features, wanted.features)
    (large,) = run.buckets
    assert large["points"] == small["points"]
    assert all(a >= b for a, b in zip(large["triplets"], small["triplets"], strict=True))
    run(points(230, 1)[0])
    assert run.buckets == [large]


def test_calls_are_through_before_their_memory_goes() -> None:
    net = made()
    run = graphed(net)
    run(points(230, 1)[0])
    held = weakref.ref(next(iter(run._buckets.values())).input)
    seen = []
    run._done = SimpleNamespace(synchronize=lambda: seen.append(held() is not None))
    run(points(230, 1, cell=0.4)[0])
    assert seen == [True]
    held = weakref.ref(next(iter(run._buckets.values())).input)
    with torch.no_grad():
        next(net.parameters()).mul_(2)
    run(points(230, 1)[0])
    assert seen == [True, True]


def test_a_crowded_cloud_runs_eagerly_and_others_do_not() -> None:
    run = graphed(made())
    for crowded in (True, False):
        x, _ = points(230, 1)
        run._planner(x.geometry, False)
        for built in x.geometry.cached_maps():
            object.__setattr__(built.edges, "crowded", crowded)
        assert run(x).geometry is x.geometry
        assert len(run.buckets) == (0 if crowded else 1)
    assert run.reason is None


def test_the_bucket_unused_for_longest_goes_first() -> None:
    run = graphed(made(), most=2)
    for number in (100, 250, 100, 300):
        run.warmup(points(number, 1)[0])
    assert [bucket["points"] for bucket in run.buckets] == [128, 384]


def test_planning_another_kind_of_points_keeps_what_graphs_read() -> None:
    run = graphed(made())

    def folded() -> list[Any]:
        return [m._folded._kept for m in run._net.modules() if isinstance(m, ConvNorm)]

    run(points(230, 1)[0])
    before = folded()
    run(points(1, 1)[0])  # traces the network again
    assert all(one is other for one, other in zip(before, folded(), strict=True))
    assert None not in before


def test_clouds_are_freed_without_a_collector() -> None:
    run = graphed(made(Branches))
    run(points(230, 1)[0])
    gc.disable()
    try:
        x, _ = points(230, 2)
        output, levels = run(x), [x.geometry, *x.geometry.levels().values()]
        alive = [weakref.ref(level) for level in levels]
        del x, output, levels
        assert all(level() is None for level in alive)
    finally:
        gc.enable()


@pytest.mark.parametrize("dtype", [None, torch.float32])
def test_changed_weights_are_seen(dtype: torch.dtype | None) -> None:
    net = made()
    run = graphed(net, dtype=dtype)
    x, _ = points(230, 1)
    before = run(x).features
    assert before.dtype == (dtype or torch.float64)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(1.1)
    after = run(points(230, 1)[0]).features
    assert not torch.equal(before, after)
    with torch.inference_mode():
        wanted = net(points(230, 1)[0]).features
    torch.testing.assert_close(after.double(), wanted, rtol=1e-4, atol=1e-5)


def test_what_is_not_captured_runs_eagerly_and_says_so() -> None:
    x, _ = points(230, 1)
    net = made()
    run = pcnn.runtime.graph(net)
    with torch.inference_mode():
        wanted = net(x).features
    close(run(x).features, wanted)
    assert run.reason is not None
    assert "on cpu" in run.reason
    net = made(lambda: Branches(resolve("auto")))  # bags, on a CPU
    run, said = graphed(net), []
    for _ in range(2):
        x, _ = points(230, 1)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert run(x)["levels"][0].geometry is x.geometry
        said += [str(one.message) for one in caught]
    (message,) = said
    assert message.startswith("Branches runs without CUDA graphs: the layout 'bags'")
    assert not run.buckets


def test_wrong_inputs_are_refused() -> None:
    net = made()
    run = graphed(net)
    with pytest.raises(TypeError, match=r"takes a pcnn\.SparseTensor"):
        run(torch.zeros(3, 2))
    voxels = pcnn.voxelize(torch.rand(9, 3), torch.rand(9, 2), voxel_size=0.1)
    with pytest.raises(ValueError, match=r"called with VoxelGrid.*voxel_size"):
        run(voxels)
    net.train()
    with pytest.raises(ValueError, match="switched to training"):
        run(points(30, 1)[0])
    with pytest.raises(ValueError, match=r"call model\.eval\(\)"):
        pcnn.runtime.graph(net)


@pytest.mark.parametrize("inner", [False, True])
def test_memory_that_is_missing_is_no_reason_to_run_eagerly_for_ever(inner: bool) -> None:
    missing = [True]

    def capture(work: Callable[[], Figures]) -> Callable[[], Figures]:
        if not missing:
            return rerun(work)
        missing.pop()
        try:
            raise torch.OutOfMemoryError("no memory")
        finally:
            if inner:  # as the end of a capture does, which has failed too
                raise RuntimeError("operation failed due to a previous error during capture")

    run = GraphedPoints(made(), edges=EDGES, capture=capture)
    x, _ = points(230, 1)
    with pytest.raises(torch.OutOfMemoryError):
        run(x)
    assert run.reason is None
    run(x)
    assert run.reason is None
    assert len(run.buckets) == 1


def test_work_that_waits_is_a_reason() -> None:
    assert "in a capture" in failure_of(RuntimeError("a wait in a capture\nand more"))
