import copy
import pickle
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import pcnn
from pcnn.dataflows import ConvSpec, Reference
from pcnn.geometry import KernelMap, VoxelGrid
from pcnn.maps import MapBuilder, SortedSearch, Windowed
from pcnn.models import MinkUNet42, ResNet18, ResUNetBN2C, SparseResNet21
from pcnn.ops import Engine
from tests.clouds import surface_grid


def cached(grid: VoxelGrid) -> tuple[int, int]:
    """Number of levels and of maps below a grid, itself included."""
    maps = len(grid.cached_maps())
    below = [cached(level) for level in grid.levels().values()]
    return 1 + sum(b[0] for b in below), maps + sum(b[1] for b in below)


@pytest.mark.parametrize(
    ("model", "levels", "maps"),
    [
        (lambda: MinkUNet42(width=0.125), 5, 9),
        (lambda: SparseResNet21(width=0.25), 5, 8),
        (lambda: ResUNetBN2C(in_channels=4, width=0.25), 4, 8),
        (lambda: ResNet18(width=0.125), 6, 12),
    ],
    ids=["minkunet42", "sparse_resnet21", "resunet", "resnet18"],
)
def test_a_plan_builds_all_that_the_model_asks_for(
    model: type[nn.Module], levels: int, maps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = model()
    grid = surface_grid(300, batch_size=2)
    assert pcnn.plan(net, grid) is grid
    assert cached(grid) == (levels, maps)
    builder = next(m.engine.builder for m in net.modules() if hasattr(m, "engine"))
    monkeypatch.setattr(type(builder), "build", lambda *a: pytest.fail("an unplanned map"))
    net(pcnn.SparseTensor(torch.randn(grid.rows, 4), grid))
    assert cached(grid) == (levels, maps)


@dataclass(frozen=True)
class Stub:
    """A dataflow that reads what it is told to, and computes nothing."""

    name: str
    needs: tuple[str, ...]
    needs_weight_grad: tuple[str, ...] = ("pairs", "counts")
    fuses: bool = True
    deterministic: bool = True

    def forward(self, x: Tensor, w: Tensor, layouts: Any, n_out: int, spec: ConvSpec) -> Any:
        return x.new_zeros(n_out, w.shape[1 if spec.transposed else 2])

    def weight_grad(self, x: Tensor, g: Tensor, *_: Any) -> Tensor:
        return x.new_zeros(27, x.shape[1], g.shape[1])


TILED, LISTED = Stub("tiled", ("table", "steps")), Stub("listed", ("pairs", "counts"))


class UpAndDown(nn.Module):
    """A layer on the sites, one down and one up again on the same map, read backwards."""

    def __init__(self, builder: MapBuilder, first: Any = TILED, others: Any = TILED) -> None:
        super().__init__()
        one, other = Engine("one", builder, first), Engine("other", builder, others)
        self.first = pcnn.nn.Conv3d(4, 4, 3, engine=one)
        self.down = pcnn.nn.Conv3d(4, 4, 3, 2, engine=other)
        self.up = pcnn.nn.ConvTranspose3d(4, 4, 3, 2, engine=other)

    def forward(self, x: pcnn.SparseTensor) -> pcnn.SparseTensor:
        x = self.first(x)
        return self.up(self.down(x), x)


def laid_out(grid: VoxelGrid) -> dict[bool, set[tuple[str, bool]]]:
    """Layouts of the maps from a grid, by whether the map is symmetric; sizes left out."""
    tensors = {"table", "steps", "pairs", "counts", "blocks"}
    return {
        built.symmetric: {key for key in built.edges.layouts if key[0] in tensors}
        for built in grid.cached_maps()
    }


@pytest.mark.parametrize("builder", [SortedSearch(), Windowed()], ids=lambda b: b.name)
def test_every_map_gets_what_its_layers_read(builder: MapBuilder, emulated: None) -> None:
    grid = surface_grid(300)
    planner = pcnn.Planner(UpAndDown(builder))
    found = laid_out(planner(grid, backward=False))
    tiled = {("table", False), ("steps", False)}
    # triplets are listed only by a builder that lists them itself
    pairs = {("pairs", False), ("pairs", True)} if isinstance(builder, SortedSearch) else set()
    assert found[True] - pairs == tiled
    assert found[False] - pairs == {(name, side) for name, _ in tiled for side in (False, True)}

    found = laid_out(planner(surface_grid(300), backward=True))
    listed = {("pairs", False), ("counts", False)}
    assert found[True] - pairs == (tiled | listed) - pairs  # its own transpose
    assert found[False] >= {(name, side) for name, _ in tiled | listed for side in (False, True)}


def held_bytes(grid: VoxelGrid) -> int:
    """Bytes of all layouts of the maps between a grid and its levels; shared memory counts once."""
    grids, kept = [grid], {}
    for one in grids:
        grids += one.levels().values()
        for built in one.cached_maps():
            for tensor in (t for layout in built.edges.layouts.values() for t in layout):
                memory = tensor.untyped_storage()
                kept[memory.data_ptr()] = memory.nbytes()
    return sum(kept.values())


@pytest.mark.parametrize("backward", [False, True])
def test_a_plan_keeps_tiles_and_not_the_tables_they_came_from(
    backward: bool, emulated: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = Stub("alone", ("steps",))
    net = UpAndDown(Windowed(), alone, alone)
    grid = pcnn.Planner(net)(surface_grid(700), backward=backward)
    with monkeypatch.context() as patch:
        patch.setattr(KernelMap, "drop_tables", lambda _: None)
        whole = pcnn.Planner(net)(surface_grid(700), backward=backward)
    maps, others = grid.cached_maps(), whole.cached_maps()
    assert not any(built.has("table") or built.has("masks") for built in maps)
    # tables and masks of 27 slots: two maps, the strided one from both sides
    tables = sum(4 * 28 * (built.n_out + (not built.symmetric) * built.n_in) for built in others)
    assert held_bytes(whole) - held_bytes(grid) >= 0.9 * tables
    for built, other in zip(maps, others, strict=True):
        for mine, wanted in ((built, other), (built.transpose(), other.transpose())):
            for name in ("table", "masks", "counts", "pairs"):
                for a, b in zip(mine.layout(name), wanted.layout(name), strict=True):
                    assert torch.equal(a, b)


def test_a_planner_notices_other_engines() -> None:
    net = UpAndDown(SortedSearch())
    planner = pcnn.Planner(net)
    grid = surface_grid(300)
    planner(grid, backward=False)
    assert planner.is_planned(grid, backward=False)
    net.first.engine = Engine("one", SortedSearch(), Reference())
    net.down.engine = Engine("other", SortedSearch(), Stub("blocks", ("blocks",)))
    assert not planner.is_planned(grid, backward=False)
    planner(grid, backward=False)
    assert ("blocks", False) in laid_out(grid)[False]


def test_copies_and_pickles_plan_for_themselves() -> None:
    net = MinkUNet42(width=0.125)
    assert net.planner is net.planner
    for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert twin.planner is not net.planner
        assert twin.planner.belongs_to(twin)
    held = pickle.loads(pickle.dumps(net.planner))
    grid = surface_grid(100)
    assert held(grid, backward=False) is grid
    assert net.planner.is_planned(grid, backward=False)
