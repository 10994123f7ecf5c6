"""Plans of networks on native points on a GPU: no waits after them, memory, as on a CPU."""

from dataclasses import replace

import pytest
import torch

import pcnn
from pcnn.geometry import Kernel, PointSet
from pcnn.maps.point_levels import Step, point_levels
from pcnn.maps.radius import RadiusSearch
from pcnn.maps.tiling import CellParents
from tests.maps.native_points import coarser, scan, single
from tests.waits import nothing_waits

pytestmark = [pytest.mark.gpu, pytest.mark.long]

DEVICE = torch.device("cuda")


def fresh(points: PointSet) -> PointSet:
    return replace(points)


@pytest.mark.parametrize("sites", ["nearest", "cell_origin"])
def test_levels_and_maps_are_those_of_the_cpu(sites: str) -> None:
    here = scan(30_000, downsampling=sites)
    steps = [Step(0, (2, 2, 2)), Step(1, (2, 2, 2)), Step(2, (1, 1, 2))]
    there, _ = point_levels(here.to(DEVICE), steps)
    sets = [here]
    for parent, stride in steps:
        sets.append(coarser(sets[parent], stride))
        for name in ("points", "keys", "inverse"):
            assert torch.equal(getattr(there[len(sets) - 1], name).cpu(), getattr(sets[-1], name))
    kernel = Kernel.of(2, 2)
    own, other = here.strided(kernel), there[0].strided(kernel)
    built, wanted = (
        CellParents().build(there[0], other, kernel),
        CellParents().build(here, own, kernel),
    )
    for side in (False, True):
        views = [type(m)(m.edges, side) for m in (built, wanted)]
        for name in ("pairs", "rows_csr", "counts"):
            for got, expected in zip(*(view.layout(name) for view in views), strict=True):
                assert torch.equal(got.cpu(), expected)


@pytest.mark.parametrize("engine", ["auto", "pointcnnpp"])
@pytest.mark.parametrize("several", [True, False])
def test_nothing_waits_after_the_plan(engine: str, several: bool) -> None:
    root = scan(20_000)
    points = (root if several else single(root)).to(DEVICE)
    net = pcnn.models.MinkUNet42(4, 5, width=0.25, engine=engine).to(DEVICE)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    x = torch.randn(points.rows, 4, device=DEVICE)

    def step(planned: PointSet) -> None:
        with torch.autocast("cuda", torch.float16):
            y = net(pcnn.SparseTensor(x, planned))
        y.features.float().square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    step(net.planner(fresh(points), True))  # compiles
    planned = net.planner(fresh(points), True)
    with nothing_waits():
        step(planned)


def test_layouts_take_little_besides_themselves() -> None:
    """Kept: 8 bytes a triplet by slot, 4 by row, ranges and steps a tile; no list of triplets."""
    points = scan(400_000, clouds=1).to(DEVICE)
    search, kernel = RadiusSearch(), Kernel.of(3)
    search.build(points, points, kernel).layout("steps")
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    built = search.build(points, points, kernel)
    built.layout("steps")
    built.edges.layouts.pop(("rows_csr", False))
    kept = torch.cuda.memory_allocated() - before
    peak = torch.cuda.max_memory_allocated() - before
    lists = built.layout("steps")
    size = 12 * built.triplets + sum(4 * tensor.numel() for tensor in lists[:-1])
    assert kept < 1.05 * size
    # while they are made: sorted points and rows, and the slots by row
    assert peak < kept + 4 * built.triplets + 80 * points.rows
