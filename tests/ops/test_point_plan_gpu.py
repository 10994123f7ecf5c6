"""Plans of networks on native points on a GPU: no waits after them, memory, as on a CPU."""

from dataclasses import replace

import pytest
import torch

import pcnn
from pcnn.geometry import Kernel, PointSet
from pcnn.maps.radius import RadiusSearch
from tests.maps.native_points import scan, single
from tests.waits import nothing_waits

pytestmark = [pytest.mark.gpu, pytest.mark.long]

DEVICE = torch.device("cuda")


def fresh(points: PointSet) -> PointSet:
    return replace(points)


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
