"""The launches of a step, found without making them; no GPU."""

import pytest
import torch

pytest.importorskip("triton")

from pcnn.dataflows import gemm
from pcnn.dataflows.gemm import OutputStationary
from pcnn.maps import SortedSearch
from pcnn.models import MinkUNet42
from pcnn.nn import PlannedModule
from pcnn.ops.engine import Engine
from pcnn.runtime.observed import in_fixed_memory, launches_of
from pcnn.tensor import SparseTensor
from tests.clouds import surface_grid
from tests.graphs.graphed import KERNELS


@pytest.fixture
def net(monkeypatch: pytest.MonkeyPatch) -> PlannedModule:
    """A network whose layers launch kernels, which on a CPU would fail."""
    monkeypatch.setattr(gemm, "kernels_serve", lambda x, dtype: True)
    engine = Engine("kernels", SortedSearch(), OutputStationary())
    torch.manual_seed(0)
    return MinkUNet42(4, 3, width=0.25, engine=engine)


def test_a_step_is_written_down_and_leaves_no_trace(net: PlannedModule) -> None:
    grid = surface_grid(60)
    x = SparseTensor(torch.randn(grid.rows, 4), grid)
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    torch.manual_seed(5)
    state = torch.get_rng_state()
    with torch.autocast("cpu", torch.bfloat16):
        launches = launches_of(net.train(), (x, x), backward=True)
    names = {launch.kernel.__name__ for launch in launches}
    assert {"gather_gemm", "outer_products_kernel", "sum_of_chunks_kernel"} <= names
    transposed = {launch.arguments[21] for launch in launches if "gemm" in launch.kernel.__name__}
    assert transposed == {False, True}
    assert {launch.arguments[0] for launch in launches if "gemm" in launch.kernel.__name__} == {
        torch.bfloat16
    }
    after = net.state_dict()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    assert all(weight.grad is None for weight in net.parameters())
    assert torch.equal(torch.get_rng_state(), state)
    assert net.training

    forward = launches_of(net.eval(), (x,), backward=False)
    assert {launch.kernel.__name__ for launch in forward} == {"gather_gemm", "finish_kernel"}
    assert not set(forward) & set(launches)  # norms and ReLU are part of these kernels


@pytest.mark.usefixtures("emulated")
def test_a_step_whose_plan_is_a_graph_is_written_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gemm, "kernels_serve", lambda x, dtype: True)
    net, grid = MinkUNet42(4, 3, width=0.25, engine=KERNELS).train(), surface_grid(60)
    fixed = in_fixed_memory(net, SparseTensor(torch.randn(grid.rows, 4), grid))
    assert fixed.geometry.count is not None
    assert int(fixed.geometry.count) == grid.rows < fixed.geometry.rows
    names = {launch.kernel.__name__ for launch in launches_of(net, (fixed,), backward=True)}
    assert {"gather_gemm", "outer_products_kernel", "sum_of_chunks_kernel"} <= names
