"""Figures on kernel maps, and the checks of what a builder delivers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from pcnn.bench.mapping import figures, l2_hits, maps, network_plan
from pcnn.bench.mapping.builders import (
    BLOCK_SIZES,
    FOR_PRODUCT,
    HASH_TABLE_STEPS,
    ON_CUDA,
    builders_for,
    for_product,
    named,
)
from pcnn.bench.mapping.figures import FIGURES, pack_and_sort
from pcnn.bench.mapping.l2_hits import KernelHits, l2_hit_percent, mean_hits, ncu_command, one_build
from pcnn.bench.mapping.maps import builds, searches, split
from pcnn.bench.mapping.products import (
    Planned,
    build,
    check_product,
    check_tiles,
    floor_ms,
    layouts_of,
)
from pcnn.bench.place import Place, bare
from pcnn.bench.rows import PRODUCTS, Row
from pcnn.bench.scenes import Scene, load_scene
from pcnn.bench.trace import KernelTime
from pcnn.bench.verify import CheckFailed
from pcnn.geometry import Kernel, KernelMap, grid_of_cells
from pcnn.maps import SortedSearch
from tests.bench.settings import CELLS, SMALL, left_out, listed, of_maps, rows_of

CPU = torch.device("cpu")
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
ROW = Row("map", "scene", "sorted_search")
#: The emulator of kernels takes its time.
TINY = [Scene("tiny", grid_of_cells(CELLS[:40]))]


def place(size: int = 3, stride: int = 1) -> Place:
    return Place.of(load_scene("random_1k"), Kernel.of(size, stride), CPU)


def product_of(of: Place, product: str) -> KernelMap:
    return build(bare(of.grid), SortedSearch(), of.kernel, product)


@pytest.fixture
def all_serve(emulated: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU passes for a GPU. Whole checks of the builders are tests of tests/maps."""
    monkeypatch.setattr(figures, "builders_for", lambda _: [SortedSearch(), *ON_CUDA])
    for module in (figures, maps):
        monkeypatch.setattr(module, "check_map_builder", lambda *_: None)


@pytest.mark.parametrize("device", DEVICES)
def test_every_product_and_stage_is_checked_and_timed(device: str) -> None:
    setting = of_maps(device=device, kernels="3:1,2:2", rate=4.2e12)
    rows = rows_of(FIGURES, "spira_fig12", setting)
    timed = [row for row in rows if not row.params]
    names = dict.fromkeys(row.engine for row in timed)
    assert [(row.k, row.stride, row.engine, row.product) for row in timed] == [
        (*kernel, name, product)
        for kernel in ((3, 1), (2, 2))
        for name in names
        for product in PRODUCTS
    ]
    for row in timed:
        assert 0 < row.min_ms <= row.wall_ms <= row.p90_ms
        assert (row.what, row.cache) == ("map", "warm")
    floors = {row.product: row.floor_ms for row in timed}
    assert 0 < floors["table"] <= floors["ready"] <= floors["train"]
    stages = [(row.params or {})["stage"] for row in rows if row.params]
    assert stages == 2 * len(names) * ["prepare", "search", "finish"]


@pytest.mark.usefixtures("all_serve")
def test_builders_of_kernels_deliver_every_product() -> None:
    builders = [ON_CUDA[4], Planned()]
    rows = rows_of(FIGURES, "spira_fig12", of_maps(builders=builders, kernels="2:2", scenes=TINY))
    assert not left_out(rows)
    assert [row.product for row in rows if row.wall_ms is not None] == 2 * list(PRODUCTS)


def test_builders_are_found_by_name_and_set_for_a_product() -> None:
    assert [builder.name for builder in builders_for(CPU)] == ["sorted_search"]
    names = [builder.name for builder in builders_for(torch.device("cuda"))]
    assert len(set(names)) == len(names)
    assert named(CPU, []) == builders_for(CPU)
    with pytest.raises(ValueError, match="no map builder named hash_table on cpu"):
        named(CPU, ["hash_table"])
    for (name, product), builder in FOR_PRODUCT.items():
        assert builder.name == name
        assert for_product(builder, product) is builder
    assert for_product(SortedSearch(), "pairs") == SortedSearch()


def test_right_products_pass() -> None:
    for size, stride in ((3, 1), (2, 2), (5, 1)):
        of = place(size, stride)
        for product in PRODUCTS:
            row = replace(ROW, product=product)
            check_product(row, product_of(of, product), of.pairs).admit(row)


def test_a_layout_that_disagrees_with_the_pairs_is_found() -> None:
    for product, flipped, name in (
        ("table", False, "table"),
        ("train", True, "fitting_tiles"),
        ("ready", False, "fitting_tiles"),
    ):
        of = place(3, 2 if flipped else 1)
        built = product_of(of, product)
        view = built.transpose() if flipped else built
        first, *others = view.layout(name)
        wrong = first.clone()
        wrong[0] = wrong[1]
        built.edges.layouts[name, flipped] = (wrong, *others)
        with pytest.raises(CheckFailed, match=r"neighbour table|exactly once"):
            check_product(replace(ROW, product=product), built, of.pairs)


def test_tiles_that_list_other_slots_are_found() -> None:
    built = product_of(place(), "ready")
    out, slots, counts, rows = built.layout("fitting_tiles")
    fewer, doubled, beyond, other = counts.clone(), slots.clone(), slots.clone(), rows.clone()
    fewer[0] -= 1
    doubled[0, 1] = doubled[0, 0]
    beyond[0, 0] = 27
    other[0, 0] = other[0, 0].roll(1)
    for tiles in (
        (out, slots, fewer, rows),
        (out, doubled, counts, rows),
        (out, beyond, counts, rows),
        (out, slots, counts, other),
    ):
        built.edges.layouts["fitting_tiles", False] = tiles
        with pytest.raises(CheckFailed, match=r"other slots|does not have|other inputs"):
            check_tiles(ROW, built)
    turned = tuple(tensor.flip(0) for tensor in (out, slots, counts, rows))
    built.edges.layouts["fitting_tiles", False] = turned
    if counts[0] > counts[-1]:
        with pytest.raises(CheckFailed, match="falling"):
            check_tiles(ROW, built)


def test_sections_are_checked_too() -> None:
    of = place(5)
    built = product_of(of, "ready")
    out, slots, counts, rows = built.layout("fitting_tiles")
    assert len(out) > -(-of.grid.rows // 128)  # cut along z
    # a missing tile, which shows only where its triplets are counted
    built.edges.layouts["fitting_tiles", False] = out[1:], slots[1:], counts[1:], rows[1:]
    with pytest.raises(CheckFailed, match="every triplet exactly once"):
        check_tiles(ROW, built)
    other = slots.clone()
    other[0, 0] += 1  # of another plane
    built.edges.layouts["fitting_tiles", False] = out, other, counts, rows
    with pytest.raises(CheckFailed, match=r"other slots|other inputs"):
        check_tiles(ROW, built)


def test_products_are_what_auto_reads_on_a_gpu() -> None:
    assert layouts_of("ready", True) == (("fitting_tiles",), ())
    assert layouts_of("train", True) == (("fitting_tiles", "pairs", "counts"), ())
    assert layouts_of("train", False)[1] == ("fitting_tiles",)
    # the same by a builder and by a plan, and no layout of a side that is not read
    for size, stride in ((3, 1), (3, 2)):
        of = place(size, stride)
        planned = Planned().make(bare(of.grid), of.kernel, "train")
        for held in (product_of(of, "train"), planned):
            assert held.transpose().has("fitting_tiles") == (stride != 1)
            if stride == 1:
                assert not held.transpose().has("table")
                assert not held.transpose().has("tiles")


def test_calls_find_levels_again_and_take_turns_among_copies_of_the_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    of = place(2, 2)
    calls = builds(of, SortedSearch(), "table")
    assert calls(0)().edges is not calls(1)().edges
    assert not bare(of.grid).levels()
    seen: list[int] = []
    monkeypatch.setattr(maps, "build", lambda grid, *_: seen.append(grid.keys.data_ptr()))
    calls = builds(place(), SortedSearch(), "table", 3)
    for index in range(6):
        calls(index)()
    assert seen[:3] == seen[3:]
    assert len(set(seen)) == 3


def test_the_floor_counts_keys_and_product_once() -> None:
    of = place()
    n = of.grid.rows
    wanted = 1e3 * (8 * n + 4 * n * 27) / 4.2e12
    assert floor_ms(product_of(of, "table"), of.grid, of.grid, "table", 4.2e12) == pytest.approx(
        wanted
    )
    of = place(2, 2)
    wanted = 1e3 * (8 * (n + of.target.rows) + 8 * of.triplets + 8 * 9) / 3e12
    found = floor_ms(product_of(of, "pairs"), of.grid, of.target, "pairs", 3e12)
    assert found == pytest.approx(wanted)


def test_stages_stand_before_and_after_the_search() -> None:
    def timeline(*names: str) -> list[KernelTime]:
        return [KernelTime(name, 1000.0, 1) for name in names]

    found = timeline("pack", "radix_pass", "search", "fill", "search", "scan", "radix_pass")
    assert split(found) == {"prepare": 2.0, "search": 3.0, "finish": 2.0}
    assert split(timeline("pack", "sort")) == {"prepare": 2.0, "search": 0.0, "finish": 0.0}
    for name in (
        *("void search(SearchArguments)", "split_queries", "windowed_search", "first_windows"),
        *("z_delta", "binary_search", "disjoint_map", "aten::searchsorted"),
        "void at::native::(anonymous namespace)::searchsorted_cuda_kernel<long, long>",
    ):
        assert searches(name), name
    for name in ("radix_pass", "insert", "bound_box", "aten::sort", "mask_keys", "tile_lists"):
        assert not searches(name), name


@pytest.mark.usefixtures("all_serve")
def test_torchsparse_fig13_takes_the_steps_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = rows_of(FIGURES, "torchsparse_fig13", of_maps(scenes=TINY))
    steps = [step for step, _ in HASH_TABLE_STEPS]
    assert [(row.stride, row.params["step"], row.params["part"]) for row in rows] == [
        *((1, step, "map search") for step in steps),
        *((2, step, part) for step in steps for part in ("output sites", "map search")),
    ]
    assert all(row.checked and row.wall_ms > 0 for row in rows)
    differing = [step.search + str(step.fused + step.simplified) for _, step in HASH_TABLE_STEPS]
    assert differing == ["hash0", "grid0", "grid1", "grid2", "grid2"]
    # a scan too wide for a grid goes on with the hash table
    wide = [Scene("wide", grid_of_cells(torch.tensor([[0, 0, 0], [0, 0, 1], [9000, 9000, 99]])))]
    rows = rows_of(FIGURES, "torchsparse_fig13", of_maps(scenes=wide))
    flat = [row for row in rows if row.stride == 1]
    flat.sort(key=lambda row: steps.index(row.params["step"]))
    kinds = [row.params["search"] for row in flat]
    assert kinds == ["hash", "grid", "hash", "hash", "hash"]
    assert "over the limit" in left_out(flat)[0]
    assert [row.wall_ms is None for row in flat] == [False, True] + 3 * [False]
    # other output sites than the oracle's get no time
    monkeypatch.setattr(type(HASH_TABLE_STEPS[0][1]), "sites", lambda _, grid, kernel: grid)
    rows = rows_of(FIGURES, "torchsparse_fig13", of_maps(scenes=TINY))
    of_sites = [row for row in rows if row.params["part"] == "output sites"]
    assert len(of_sites) == len(left_out(of_sites)) == len(steps)
    assert "other output sites" in left_out(of_sites)[0]


@pytest.mark.usefixtures("all_serve")
def test_minuet_fig18_measures_pairs_of_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "BLOCK_SIZES", BLOCK_SIZES[:1])
    (row,) = rows_of(FIGURES, "minuet_fig18", of_maps(scenes=TINY))
    assert (row.params, row.checked) == ({"B": 64, "C": 128}, True)
    sizes = [(b, c, builder.source_block, builder.query_block) for b, c, builder in BLOCK_SIZES]
    assert all((b, c) == (own_b, own_c) for b, c, own_b, own_c in sizes)


def test_minuet_fig16_keeps_the_search_and_its_hits(monkeypatch: pytest.MonkeyPatch) -> None:
    (row,) = rows_of(FIGURES, "minuet_fig16", of_maps())
    assert (row.params, row.l2_hit_percent) == ({"stage": "search"}, None)
    assert row.gpu_busy_ms > 0
    hits = lambda row, place, builder: replace(row, l2_hit_percent=95.0)  # noqa: E731
    monkeypatch.setattr(figures, "l2_hit_percent", hits)
    (row,) = rows_of(FIGURES, "minuet_fig16", of_maps(ncu=True))
    assert row.l2_hit_percent == 95.0

    def fails(*_: object) -> Row:
        raise RuntimeError("no counters")

    monkeypatch.setattr(figures, "l2_hit_percent", fails)
    timed, without = rows_of(FIGURES, "minuet_fig16", of_maps(ncu=True))
    assert timed.gpu_busy_ms > 0
    assert without.gpu_busy_ms is None
    assert without.params == {"stage": "search", "left_out": "L2 hits: no counters"}


def test_minuet_fig17_sorts_shuffled_coordinates(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = SMALL[0].grid
    (row,) = rows_of(FIGURES, "minuet_fig17", of_maps())
    assert (row.engine, row.checked, row.n) == ("pack_and_sort", True, grid.rows)
    keys, order = pack_and_sort(grid.coords.flip(0), grid.key_format)
    assert torch.equal(keys, grid.keys)
    assert torch.equal(order, torch.arange(grid.rows).flip(0))
    monkeypatch.setattr(figures, "pack_and_sort", lambda coords, layout: (coords, coords))
    (row,) = rows_of(FIGURES, "minuet_fig17", of_maps())
    assert "not those of the grid" in left_out([row])[0]


def test_spira_fig15_plans_every_network(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        listed(patch)
        rows = rows_of(FIGURES, "spira_fig15", of_maps())
    schedules = ["pcnn.plan", "sequential", "from cells"]
    assert [(row.model, row.params["schedule"]) for row in rows] == [
        (model, schedule) for model in network_plan.MODELS for schedule in schedules
    ]
    (name, make) = next(iter(network_plan.MODELS.items()))
    monkeypatch.setattr(network_plan, "MODELS", {name: make})
    rows = rows_of(FIGURES, "spira_fig15", of_maps())
    assert all(row.checked and row.wall_ms > 0 and row.params["maps"] > 5 for row in rows)
    monkeypatch.setattr(network_plan, "as_planned", lambda planner, grid: grid)
    wrong, *right = sorted(
        rows_of(FIGURES, "spira_fig15", of_maps()),
        key=lambda row: row.params["schedule"] != "pcnn.plan",
    )
    assert "left out the map" in left_out([wrong])[0]
    assert all(row.checked for row in right)


HEADER = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size",'
    '"Grid Size","Device","CC","Section Name","Metric Name","Metric Unit","Metric Value"'
)


def lines(number: int, kernel: str, *values: str) -> list[str]:
    """Of one launch: hit rate, then sectors."""
    fields = [number, 7, "python3", "127.0.0.1", kernel, 1, 7, "(256, 1, 1)", "(9, 1, 1)", 0, "9.0"]
    metrics = (l2_hits.HIT_RATE, "%"), (l2_hits.SECTORS, "sector")
    named = [(*fields, "profiler", *metric, v) for metric, v in zip(metrics, values, strict=False)]
    return [",".join(f'"{word}"' for word in words) for words in named]


LAUNCHES = [
    *lines(0, "insert", "12.5", "1,000"),
    *lines(1, "search(SearchArguments)", "90", "3,000"),
    *lines(2, "search(SearchArguments)", "50", "1,000.00"),
]
NCU = "\n".join(["==PROF== Connected to process 7", HEADER, *LAUNCHES, "==PROF== Disconnected"])


def test_the_csv_of_ncu_is_read() -> None:
    launches = l2_hits.read_ncu_csv(NCU)
    assert launches[0] == KernelHits("insert", 12.5, 1000.0)
    assert mean_hits(launches) == 80.0, "weighted by sectors, of searches alone"
    for others, message in ((launches[:1], "no search, but insert"), ([], "no kernel at all")):
        with pytest.raises(RuntimeError, match=message):
            mean_hits(others)
    for text, message in (
        ("==ERROR== ERR_NVGPUCTRPERM - no permission", "ERR_NVGPUCTRPERM"),
        ("\n".join([HEADER, *lines(0, "search", "1")]), "lts__t_sectors"),
    ):
        with pytest.raises(RuntimeError, match=message):
            l2_hits.read_ncu_csv(text)
    command = ncu_command(Path("log.csv"), ["python", "program.py"])
    assert "--clock-control=none" in command
    assert command[-2:] == ["python", "program.py"]


def test_a_row_gets_the_hits_of_its_search(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def run(command: list[str], **_: Any) -> object:
        asked.append(command)
        log = next(word for word in command if word.startswith("--log-file="))
        Path(log.partition("=")[2]).write_text(NCU)
        one_build(command[command.index("-m") + 2 :])  # what ncu would profile runs as it is given
        return type("Done", (), {"returncode": 0, "stdout": "", "stderr": ""})()

    row = Row("map", "random_1k", "sorted_search", gpu_busy_ms=1.0, checked=True)
    with monkeypatch.context() as patch:
        patch.setattr(l2_hits.subprocess, "run", run)
        found = l2_hit_percent(row, place(), SortedSearch())
    assert (found.l2_hit_percent, found.gpu_busy_ms) == (80.0, 1.0)
    assert asked[0][-4:] == ["sorted_search", "3", "1", "cpu"]
    monkeypatch.setenv("PATH", "")
    with pytest.raises(RuntimeError, match="ncu does not run"):
        l2_hit_percent(row, place(), SortedSearch())


@pytest.mark.gpu
@pytest.mark.long
def test_ncu_measures_a_search() -> None:
    on_gpu = Place.of(load_scene("surface_20k"), Kernel.of(3), torch.device("cuda"))
    found = l2_hit_percent(Row("map", "a", "b"), on_gpu, SortedSearch())
    assert 0.0 < found.l2_hit_percent <= 100.0
