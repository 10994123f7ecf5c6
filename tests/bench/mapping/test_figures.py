from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from pcnn.bench.mapping import ablation, figures, network_plan
from pcnn.bench.mapping.builders import (
    BLOCK_SIZES,
    FOR_PRODUCT,
    HASH_TABLE_STEPS,
    ON_CUDA,
    builders_for,
    for_product,
    named,
)
from pcnn.bench.mapping.figures import FIGURES
from pcnn.bench.mapping.measured import Setting
from pcnn.bench.mapping.products import PRODUCTS
from pcnn.bench.mapping.source_side import pack_and_sort, sort_row
from pcnn.bench.rows import Row
from pcnn.bench.scenes import Scene, noise
from pcnn.bench.verify import CheckFailed
from pcnn.geometry import grid_of_cells
from pcnn.maps import MapBuilder, SortedSearch

CPU = torch.device("cpu")
KNOWN = {figure.name: figure for figure in FIGURES}


def scene(n: int = 200) -> Scene:
    return Scene(f"noise_{n}", grid_of_cells(torch.from_numpy(noise(n, fill=0.2))))


def setting(*builders: MapBuilder, **options: object) -> Setting:
    words = {"repeats": 3, "budget_s": 0.0, **options}
    return Setting(CPU, [scene()], builders or (SortedSearch(),), **words)


def measured(name: str, chosen: Setting) -> list[Row]:
    return list(KNOWN[name].measure(chosen, name))


def all_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a CPU pass for a device that every builder serves, as the emulated kernels do."""
    for module in (ablation, figures):
        monkeypatch.setattr(module, "builders_for", lambda _: [SortedSearch(), *ON_CUDA])


def test_builders_are_found_by_name() -> None:
    assert [builder.name for builder in builders_for(CPU)] == ["sorted_search"]
    names = [builder.name for builder in builders_for(torch.device("cuda"))]
    assert len(set(names)) == len(names)
    assert "hash_table" in names
    assert named(CPU, []) == builders_for(CPU)
    with pytest.raises(ValueError, match="no map builder named hash_table on cpu"):
        named(CPU, ["hash_table"])


def test_settings_for_a_product_keep_the_name() -> None:
    for (name, product), builder in FOR_PRODUCT.items():
        assert builder.name == name
        assert product in PRODUCTS
        assert for_product(builder, product) is builder
    assert for_product(SortedSearch(), "pairs") == SortedSearch()


def test_figures_are_of_three_papers() -> None:
    assert {name.partition("_")[0] for name in KNOWN} == {"torchsparse", "minuet", "spira"}
    assert len(KNOWN) == len(FIGURES) == 6


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize("builder", ON_CUDA, ids=lambda builder: builder.name)
@pytest.mark.parametrize("kernel", [(3, 1), (2, 2)], ids=str)
def test_every_builder_delivers_every_product(builder: MapBuilder, kernel) -> None:
    rows = measured("spira_fig12", setting(builder, kernels=[kernel], count=False))
    timed = [row for row in rows if row.wall_ms is not None]
    left_out = [row.params for row in rows if row.params and "left_out" in row.params]
    assert not left_out
    assert [row.product for row in timed] == list(PRODUCTS)
    assert {row.engine for row in rows} == {builder.name}


@pytest.mark.usefixtures("emulated")
def test_torchsparse_fig13_takes_the_steps_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert measured("torchsparse_fig13", setting()) == [], "no hash table serves a CPU"
    all_serve(monkeypatch)
    rows = measured("torchsparse_fig13", setting())
    parts = [(row.stride, row.params["step"], row.params["part"]) for row in rows]
    steps = [step for step, _ in HASH_TABLE_STEPS]
    assert parts == [(1, step, "map search") for step in steps] + [
        (2, step, part) for step in steps for part in ("output sites", "map search")
    ]
    assert all(row.checked and row.wall_ms > 0 for row in rows)
    differing = [step.search + str(step.fused + step.simplified) for _, step in HASH_TABLE_STEPS]
    assert differing == ["hash0", "grid0", "grid1", "grid2", "grid2", "runs2"]


@pytest.mark.usefixtures("emulated")
def test_a_scan_too_wide_for_a_grid_goes_on_with_the_hash_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    all_serve(monkeypatch)
    cells = torch.tensor([[0, 0, 0], [0, 0, 1], [9000, 0, 0]])
    wide = replace(setting(), scenes=[Scene("wide", grid_of_cells(cells))])
    rows = [row for row in measured("torchsparse_fig13", wide) if row.stride == 1]
    assert [row.params["search"] for row in rows] == [
        "hash",
        "grid",
        "hash",
        "hash",
        "hash",
        "runs",
    ]
    assert "over the limit" in rows[1].params["left_out"]
    assert [row.wall_ms is None for row in rows] == [False, True] + 4 * [False]


@pytest.mark.usefixtures("emulated")
def test_other_sites_than_the_oracles_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    all_serve(monkeypatch)
    monkeypatch.setattr(type(HASH_TABLE_STEPS[0][1]), "sites", lambda _, grid, kernel: grid)
    with pytest.raises(CheckFailed, match="other output sites"):
        measured("torchsparse_fig13", setting())


def test_minuet_fig16_keeps_the_search_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    (row,) = measured("minuet_fig16", setting())
    assert row.params == {"stage": "search"}
    assert row.gpu_busy_ms > 0
    assert row.l2_hit_percent is None
    hits = lambda row, case, builder: replace(row, l2_hit_percent=95.0)  # noqa: E731
    monkeypatch.setattr(figures, "l2_hit_percent", hits)
    (row,) = measured("minuet_fig16", setting(ncu=True))
    assert row.l2_hit_percent == 95.0


def test_hits_that_cannot_be_read_leave_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> Row:
        raise RuntimeError("no counters")

    monkeypatch.setattr(figures, "l2_hit_percent", fails)
    timed, left_out = measured("minuet_fig16", setting(ncu=True))
    assert timed.gpu_busy_ms > 0
    assert left_out.gpu_busy_ms is None
    assert left_out.params == {"stage": "search", "left_out": "L2 hits: no counters"}


def test_minuet_fig17_sorts_shuffled_coordinates() -> None:
    (row,) = measured("minuet_fig17", setting())
    assert (row.engine, row.checked, row.n) == ("pack_and_sort", True, scene().grid.rows)
    grid = scene().grid
    keys, order = pack_and_sort(grid.coords.flip(0), grid.key_format)
    assert torch.equal(keys, grid.keys)
    assert torch.equal(order, torch.arange(grid.rows).flip(0))


def test_a_wrong_sort_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "pcnn.bench.mapping.source_side.pack_and_sort", lambda coords, layout: (coords, coords)
    )
    (case,) = setting().cases([(3, 1)])
    with pytest.raises(CheckFailed, match="not those of the grid"):
        sort_row(setting(), case, "figure")


@pytest.mark.usefixtures("emulated")
def test_minuet_fig18_measures_every_pair_of_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert measured("minuet_fig18", setting()) == []
    all_serve(monkeypatch)
    monkeypatch.setattr(figures, "BLOCK_SIZES", BLOCK_SIZES[:2])
    rows = measured("minuet_fig18", setting())
    assert [row.params for row in rows] == [{"B": 64, "C": 128}, {"B": 64, "C": 256}]
    assert all(row.checked for row in rows)
    sizes = [(b, c, builder.source_block, builder.query_block) for b, c, builder in BLOCK_SIZES]
    assert all((b, c) == (own_b, own_c) for b, c, own_b, own_c in sizes)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_spira_fig15_plans_every_network(device: str) -> None:
    chosen = replace(setting(), device=torch.device(device))
    rows = measured("spira_fig15", chosen)
    schedules = [
        "pcnn.plan",
        "sequential",
        *(["streams"] if device == "cuda" else []),
        "from cells",
    ]
    assert [(row.model, row.params["schedule"]) for row in rows] == [
        (model, schedule) for model in network_plan.MODELS for schedule in schedules
    ]
    for row in rows:
        assert row.checked
        assert row.wall_ms > 0
        assert row.params["maps"] > 5


@pytest.mark.usefixtures("emulated")
def test_a_batched_plan_passes_the_same_check() -> None:
    rows = measured("spira_fig15", setting())
    assert all(row.checked for row in rows)


def test_a_plan_that_leaves_a_map_out_gets_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_plan, "as_planned", lambda planner, grid: grid)
    wrong, right, *_ = measured("spira_fig15", setting())
    assert "left out the map" in wrong.params["left_out"]
    assert wrong.wall_ms is None
    assert not wrong.checked
    assert right.checked
    assert right.wall_ms > 0


@pytest.mark.gpu
@pytest.mark.parametrize("name", list(KNOWN))
def test_every_figure_is_measured_on_a_gpu(name: str) -> None:
    device = torch.device("cuda")
    kernels = [(3, 1), (2, 2)]
    chosen = Setting(device, [scene(2000)], builders_for(device), kernels, repeats=3, budget_s=0.2)
    rows = measured(name, chosen)
    assert rows
    assert not [row for row in rows if row.params and "left_out" in row.params]
    assert all(row.checked for row in rows)
