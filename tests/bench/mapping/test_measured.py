from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch

from pcnn.bench.mapping.check import check_product, check_tiles
from pcnn.bench.mapping.figures import scaling
from pcnn.bench.mapping.measured import (
    Case,
    Setting,
    attempt,
    middle_trace,
    stage_rows,
    timed_row,
)
from pcnn.bench.mapping.planned import Planned
from pcnn.bench.mapping.products import PRODUCTS, bare, build, floor_ms, layouts_of
from pcnn.bench.scenes import load_scene
from pcnn.bench.trace import KernelTime, Trace
from pcnn.bench.verify import CheckFailed
from pcnn.geometry import Kernel, KernelMap, VoxelGrid
from pcnn.maps import SortedSearch

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
KERNELS = [(3, 1), (2, 2), (3, 2), (5, 1)]


def setting(device: str = "cpu", **options: object) -> Setting:
    words = {"repeats": 3, "budget_s": 0.1, **options}
    return Setting(torch.device(device), [load_scene("random_1k")], [SortedSearch()], **words)


def case(size: int = 3, stride: int = 1) -> Case:
    scene = load_scene("random_1k")
    return Case(scene.name, scene.grid, Kernel.of(size, stride))


@dataclass(frozen=True)
class Damaged:
    """A builder whose maps lack a triplet, or are none at all."""

    name: str = "damaged"
    error: str | None = None

    def build(self, source: VoxelGrid, target: VoxelGrid, kernel: Kernel) -> KernelMap:
        if self.error:
            raise ValueError(self.error)
        (table,) = SortedSearch().build(source, target, kernel).layout("table")
        table = table.clone()
        table[0] = -1
        return KernelMap.from_table(table, source.rows)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("size", "stride"), KERNELS)
def test_every_product_is_checked_and_timed(size: int, stride: int, device: str) -> None:
    rows = list(
        scaling(setting(device, kernels=[(size, stride)], bandwidth=4.2e12, count=False), "figure")
    )
    timed = [row for row in rows if not row.params]
    assert [row.product for row in timed] == list(PRODUCTS)
    for row in timed:
        assert row.checked
        assert (row.k, row.stride, row.engine) == (size, stride, "sorted_search")
        assert 0 < row.min_ms <= row.wall_ms <= row.p90_ms
        assert row.floor_ms > 0
        assert (row.what, row.figure, row.cache) == ("map", "figure", "warm")
    floors = {row.product: row.floor_ms for row in timed}
    assert floors["table"] <= floors["ready"] <= floors["train"]
    stages = [row for row in rows if row.params]
    assert [row.params["stage"] for row in stages] == ["prepare", "search", "finish"]
    assert all(row.checked and row.gpu_busy_ms is not None for row in stages)


def test_a_wrong_map_becomes_a_row_without_a_time() -> None:
    with pytest.raises(CheckFailed, match="map builder 'damaged' is wrong in"):
        timed_row(setting(), case(), Damaged(), "table", "figure")
    for measurement in (timed_row, stage_rows):
        (row,) = attempt(measurement, setting(), case(), Damaged(), "table", "figure", {"B": 1})
        assert not row.checked
        assert row.wall_ms is row.gpu_busy_ms is None
        assert row.params["B"] == 1
        assert row.params["left_out"].startswith("CheckFailed")
    (row,) = attempt(
        timed_row, setting(), case(), Damaged(error="keys do not fit"), "table", "figure"
    )
    assert row.params == {"left_out": "ValueError: keys do not fit"}


@pytest.mark.parametrize("product", list(PRODUCTS))
@pytest.mark.parametrize(("size", "stride"), KERNELS)
def test_right_products_pass(size: int, stride: int, product: str) -> None:
    of = case(size, stride)
    built = build(bare(of.grid), SortedSearch(), of.kernel, product)
    configuration = of.configuration(SortedSearch(), product)
    check_product(configuration, built, of.truth).admit(configuration)


def test_a_layout_that_disagrees_with_the_pairs_is_found() -> None:
    for product, flipped, name in (
        ("table", False, "table"),
        ("train", True, "fitting_tiles"),
        ("ready", False, "fitting_tiles"),
    ):
        of = case(3, 2 if flipped else 1)
        built = build(bare(of.grid), SortedSearch(), of.kernel, product)
        view = built.transpose() if flipped else built
        first, *others = view.layout(name)
        wrong = first.clone()
        wrong[0] = wrong[1]
        built.edges.layouts[name, flipped] = (wrong, *others)
        with pytest.raises(CheckFailed, match=r"neighbour table|exactly once"):
            check_product(of.configuration(SortedSearch(), product), built, of.truth)


def test_products_are_what_auto_reads_on_a_gpu() -> None:
    assert layouts_of("ready", True) == (("fitting_tiles",), ())
    assert layouts_of("train", True) == (("fitting_tiles", "pairs", "counts"), ())
    assert layouts_of("train", False)[1] == ("fitting_tiles",)
    # the same by a builder and by a plan, and no layout of a side that nobody reads
    for size, stride in ((3, 1), (3, 2)):
        of = case(size, stride)
        built = build(bare(of.grid), SortedSearch(), of.kernel, "train")
        planned = Planned().make(bare(of.grid), of.kernel, "train")
        for held in (built, planned):
            assert held.transpose().has("fitting_tiles") == (stride != 1)
            if stride == 1:
                assert not held.transpose().has("table")
                assert not held.transpose().has("tiles")


def test_sections_are_checked_too() -> None:
    of = case(5, 1)
    built = build(bare(of.grid), SortedSearch(), of.kernel, "ready")
    configuration = of.configuration(SortedSearch(), "ready")
    out, slots, counts, rows = built.layout("fitting_tiles")
    assert len(out) > -(-of.grid.rows // 128)  # cut along z
    check_product(configuration, built, of.truth)
    # a tile that nobody notices to be gone, unless its triplets are counted
    built.edges.layouts["fitting_tiles", False] = out[1:], slots[1:], counts[1:], rows[1:]
    with pytest.raises(CheckFailed, match="every triplet exactly once"):
        check_tiles(configuration, built)
    other = slots.clone()
    other[0, 0] += 1  # of another plane
    built.edges.layouts["fitting_tiles", False] = out, other, counts, rows
    with pytest.raises(CheckFailed, match=r"other slots|other inputs"):
        check_tiles(configuration, built)


def test_tiles_that_list_other_slots_are_found() -> None:
    of = case()
    built = build(bare(of.grid), SortedSearch(), of.kernel, "ready")
    configuration = of.configuration(SortedSearch(), "ready")
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
            check_tiles(configuration, built)
    built.edges.layouts["fitting_tiles", False] = (
        out.flip(0),
        slots.flip(0),
        counts.flip(0),
        rows.flip(0),
    )
    if counts[0] > counts[-1]:
        with pytest.raises(CheckFailed, match="falling"):
            check_tiles(configuration, built)
    built.edges.layouts["fitting_tiles", False] = out, slots, counts, rows
    check_tiles(configuration, built)


def test_levels_are_found_anew_in_every_call() -> None:
    of = case(2, 2)
    calls = of.call(SortedSearch(), "table")
    first, second = calls(0)(), calls(1)()
    assert first.edges is not second.edges
    assert not bare(of.grid).levels()


def test_calls_take_turns_among_copies_of_the_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def note(grid: VoxelGrid, *_: object) -> None:
        seen.append(grid.keys.data_ptr())

    monkeypatch.setattr("pcnn.bench.mapping.measured.build", note)
    of = replace(case(), inputs=3)
    calls = of.call(SortedSearch(), "table")
    for index in range(6):
        calls(index)()
    assert seen[:3] == seen[3:]
    assert len(set(seen)) == 3


def test_the_floor_counts_keys_and_product_once() -> None:
    of = case()
    n, volume = of.grid.rows, 27
    built = build(bare(of.grid), SortedSearch(), of.kernel, "table")
    wanted = 1e3 * (8 * n + 4 * n * volume) / 4.2e12
    assert floor_ms(built, of.grid, of.grid, "table", 4.2e12) == pytest.approx(wanted)
    strided = case(2, 2)
    built = build(bare(strided.grid), SortedSearch(), strided.kernel, "pairs")
    m, t = strided.target.rows, strided.triplets
    wanted = 1e3 * (8 * (n + m) + 8 * t + 8 * 9) / 3e12
    assert floor_ms(built, strided.grid, strided.target, "pairs", 3e12) == pytest.approx(wanted)


def test_cases_are_scenes_times_kernels() -> None:
    two = replace(setting(), scenes=[load_scene("random_1k"), load_scene("surface_1k")])
    found = [(c.workload.split()[0], c.kernel.size[0]) for c in two.cases(((3, 1), (2, 2)))]
    assert found == [(name, k) for name in ("random_1k", "surface_1k") for k in (3, 2)]
    assert len(list(two.cases())) == 8


def test_the_middle_of_several_traces_is_the_median() -> None:
    traces = [Trace((KernelTime("a", spent, 1),)) for spent in (5.0, 1.0, 3.0)]
    assert middle_trace(traces).busy_ms == 0.003
