"""From points to features: scans, runners that passed their checks, drives, stages and memory."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from pcnn.bench import harness
from pcnn.bench.appearance import AUTHORS
from pcnn.bench.charts import charts
from pcnn.bench.clouds import Cloud
from pcnn.bench.latency import cases, drive, soak
from pcnn.bench.latency.cases import DEVICE, HOST, HostSpace, Task, by_stages
from pcnn.bench.latency.figures import FIGURES
from pcnn.bench.latency.gate import Agreement, Gate
from pcnn.bench.latency.runners import Graphed, Line, Runner, lines_on
from pcnn.bench.latency.scans import (
    cells_of,
    clouds_of_cells,
    copies,
    fixed_scan,
    name_of_drive,
    part_of,
    scans_of_folder,
    sizes_of_drive,
)
from pcnn.bench.latency.setting import LINES, LatencySetting
from pcnn.bench.latency.stages import Anatomy, Layer, anatomy, by_stage
from pcnn.bench.native.network import Points
from pcnn.bench.rows import Row
from pcnn.bench.run import run
from pcnn.bench.scenes import noise
from pcnn.bench.trace import KernelTime
from pcnn.bench.verify import CheckFailed
from pcnn.ops.engine import resolve
from tests.bench.settings import left_out, rows_of

CPU = torch.device("cpu")
CELLS = torch.from_numpy(noise(400, fill=0.3))
CLOUD = Cloud("small", (CELLS.float() + 0.5) * 0.05, 0.05)
GRAPH = Line("graph", resolve("auto"), True)
ROW = Row("network", "small", "graph", dtype="float32", model="sparse_resnet")


def voxels(cloud: Cloud) -> int:
    return len(cells_of(cloud))


def of_latency(*names: str, **other: Any) -> LatencySetting:
    fields = {"device": "cpu", "repeats": 3, "count": False, "budget": 0.01, "width": 0.125}
    fields |= {"model": ["sparse_resnet"], "line": names or ["eager"], "clouds": [CLOUD]}
    fields |= {"scans": 3, "check": 150, "batch": "1,2", "same": 8}
    return LatencySetting().having(**fields | other)


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs on a CPU: networks that run eagerly, and do not say so."""
    plain = Graphed.__call__

    def call(self: Graphed, scan: Points) -> Any:
        try:
            return plain(self, scan)
        except ValueError:
            return self.graph(scan.points, scan.features, scan.batch, scan.batch_size)

    monkeypatch.setattr(Graphed, "__call__", call)
    monkeypatch.setattr(LatencySetting, "lines", [GRAPH, *lines_on(CPU, ["eager"])])


@pytest.mark.usefixtures("graphs")
def test_every_line_and_mode_is_checked_and_timed() -> None:
    rows = rows_of(FIGURES, "latency", of_latency())
    assert not left_out(rows)
    assert [(r.engine, (r.params or {})["mode"]) for r in rows] == [
        (line, mode) for line in ("graph", "eager") for mode in (DEVICE, HOST)
    ]
    for row in rows:
        assert row.checked
        assert row.n == row.params["points"] == 400  # type: ignore[index]
        assert 0 < row.min_ms <= row.wall_ms <= row.p90_ms <= row.p95_ms <= row.p99_ms
        assert ("equals_eager" in row.params) == (row.engine == "graph")  # type: ignore[operator]
    assert rows[0].params["equals_eager"] == "bitwise"  # type: ignore[index]


@pytest.mark.usefixtures("graphs")
@pytest.mark.parametrize("model", ["minkunet", "resunet"])
def test_batches_tell_clouds_a_second(model: str) -> None:
    rows = rows_of(FIGURES, "latency_throughput", of_latency(model=[model]))
    assert not left_out(rows)
    assert [(r.params or {})["B"] for r in rows] == [1, 2, 1, 2]
    for row in rows:
        said: Any = row.params
        assert said["clouds_per_second"] == pytest.approx(
            1e3 * said["B"] / row.wall_ms, rel=0.01, abs=0.06
        )


def test_native_points_are_answered_eagerly() -> None:
    setting = of_latency("graph", "eager", geometry="native")
    assert [line.name for line in setting.lines] == ["eager"]
    for row in rows_of(FIGURES, "latency", setting):
        assert row.checked, row.params
        assert row.params["geometry"] == "native"  # type: ignore[index]


@pytest.mark.usefixtures("graphs")
def test_a_graph_that_differs_from_eager_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    right, part = Graphed.outputs, 150
    for change, message in (
        (lambda out: [2 * t for t in out] if len(out[0]) > part else out, "differ by 1.0e"),
        (lambda out: [t[:-1] for t in out] if len(out[0]) > part else out, "eager has"),
        (lambda out: [t * float("nan") for t in out], "not finite"),
    ):
        monkeypatch.setattr(Graphed, "outputs", lambda s, a, change=change: change(right(s, a)))
        rows = rows_of(FIGURES, "latency", of_latency())
        wrong = [row for row in rows if row.engine == "graph"]
        assert all(message in reason for reason in left_out(wrong))
        assert all(row.wall_ms is None for row in wrong)
        assert not left_out(rows[2:])


def test_what_cannot_be_captured_has_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LatencySetting, "lines", [GRAPH])
    rows = rows_of(FIGURES, "latency", of_latency())
    assert all("no graph: CUDA graphs need a CUDA device" in why for why in left_out(rows))


@pytest.mark.usefixtures("graphs")
def test_a_drive_has_a_row_a_scan_and_one_for_all() -> None:
    rows = rows_of(FIGURES, "latency_drive", of_latency())
    assert not left_out(rows)
    modes = [(row.engine, (row.params or {})["mode"]) for row in rows]
    of_graphs = [("graph", "scan"), (drive.EXACT, "scan")] * 3
    assert modes == [
        *of_graphs,
        *(("graph", mode) for mode in (DEVICE, HOST)),
        *[("eager", "scan")] * 3,
        *(("eager", mode) for mode in (DEVICE, HOST)),
    ]
    whole: Any = rows[6].params
    assert (whole["copies"], whole["points"]) == (3, "200-400")
    assert {"over_exact_median", "over_exact_p99", "p99_over_exact"} <= set(whole)
    sizes = [(row.params or {})["points"] for row in rows if row.engine == "eager"][:3]
    assert sorted(sizes) == [200, 300, 400]


class Slow(Runner):
    """Answers in so many milliseconds a point, by the clock of a test."""

    def __init__(self, clock: SimpleNamespace, per_point: float) -> None:
        self.clock, self.per_point = clock, per_point

    def __call__(self, scan: Points) -> torch.Tensor:
        self.clock.now += 1e-3 * self.per_point * len(scan.points)
        return scan.features

    def outputs(self, answer: Any) -> list[torch.Tensor]:
        return [answer]

    def delivered(self, answer: Any) -> torch.Tensor:
        self.clock.now += 1e-3
        return torch.as_tensor(answer)

    def memory(self) -> dict[str, int]:
        return {"bytes": 7}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    made = SimpleNamespace(now=0.0)
    monkeypatch.setattr(harness, "time", SimpleNamespace(perf_counter=lambda: made.now))
    return made


SCANS = [Points.of(Cloud("c", CLOUD.points[:n], 0.05), "voxel") for n in (100, 200, 400)]


def test_ratios_are_of_medians_scan_by_scan(clock: SimpleNamespace) -> None:
    exact = Slow(clock, 0.01)
    gate: Any = SimpleNamespace(made=lambda *_, **__: exact, agreement=lambda *_: None)
    task = Task(Slow(clock, 0.012), SCANS, Agreement(1e-4, False))
    found = drive.Drive(task, gate, GRAPH, ROW, [90, 190, 390])
    *scans, whole, host = drive.over_drive(found, of_latency(budget=1e3), False)
    assert [(row["n"], row["wall_ms"]) for row in scans] == [
        *((90, 1.2), (90, 1.0), (190, 2.4), (190, 2.0), (390, 4.8), (390, 4.0))
    ]
    assert [row.get("engine") for row in scans[:2]] == [None, drive.EXACT]
    said = whole["params"]
    names = ("over_exact_median", "over_exact_p99", "p99_over_exact", "equals_eager")
    assert [said[name] for name in names] == [1.2, 1.2, 1.2, "1.0e-04"]
    assert (whole["wall_ms"], whole["p99_ms"]) == (2.4, 4.8)
    assert (host["params"]["mode"], host["wall_ms"]) == (HOST, 3.4)


def test_memory_may_not_grow_once_it_has_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[int] = []
    clock = SimpleNamespace(now=0.0)

    class Counted(Slow):
        def __call__(self, scan: Points) -> torch.Tensor:
            called.append(len(scan.points))
            return super().__call__(scan)

    def now(_: torch.device) -> tuple[int, int]:
        return (2**20, 2**21) if len(called) < 90 else (2**20 + 64, 2**21 + 128)

    monkeypatch.setattr(soak, "memory_now", now)
    (row,) = soak.memory_over(Task(Counted(clock, 1.0), SCANS), of_latency(), False, replays=100)
    assert called == [100, 200, 400] * 33 + [100]
    said = row["params"]
    assert (said["settled_after"], said["growth"], said["device_growth"]) == (10, 64, 128)
    assert (row["memory_mb"], said["bytes"]) == (1.0, 7)
    assert not list(soak.replay_rows(of_latency(), "f")), "a CPU has no such memory"


@pytest.mark.usefixtures("graphs")
def test_graphs_are_compared_with_eager_on_clouds_of_every_size() -> None:
    (row,) = rows_of(FIGURES, "latency_same", of_latency())
    said: Any = row.params
    assert row.checked
    assert (said["clouds"], said["bitwise"]) == (8, 8)
    assert (said["least_points"], said["most_points"]) == (0, 400)
    clouds = soak.clouds_of_every_size(CLOUD, 40, [128, 256, 1024])
    sizes = [len(cloud.points) for cloud in clouds]
    assert len(sizes) == 40
    assert sizes[-9:] == [0, 1, 2, 127, 128, 129, 255, 256, 257]
    for cloud in clouds[-9:]:
        assert voxels(cloud) == len(cloud.points)
    assert Graphed(Gate(of_latency(), "sparse_resnet", CLOUD).eager.network, 0.05).edges(2000) == [
        *(1024, 1280, 1664)
    ]


def test_scans_are_read_from_workloads_points_and_folders(tmp_path: Path) -> None:
    coords = np.concatenate([np.zeros((400, 1), np.int32), CELLS.numpy()], axis=1)
    np.savez(tmp_path / "cells.npz", coords=coords, voxel_size=np.float32(0.1))
    np.savez(tmp_path / "both.npz", coords=coords, points=np.ones((7, 4), np.float32))
    np.ones((5, 4), np.float32).tofile(tmp_path / "b.bin")
    np.ones((6, 4), np.float32).tofile(tmp_path / "a.bin")
    cells, both = fixed_scan(str(tmp_path / "cells.npz")), fixed_scan(str(tmp_path / "both.npz"))
    assert (cells.name, cells.grid_size, voxels(cells)) == ("cells", 0.1, 400)
    assert not torch.equal(cells.points, (CELLS.float() + 0.5) * 0.1), "centres are shuffled"
    assert (both.grid_size, tuple(both.points.shape)) == (0.05, (7, 3))
    assert fixed_scan(str(tmp_path / "b.bin"), 0.2).grid_size == 0.2
    assert "(generated)" in fixed_scan("surface_1k").name
    assert [scan.name for scan in scans_of_folder(tmp_path)] == ["a", "b"]
    for word, message in (("nowhere.npz", "no such file"), (str(tmp_path), "no such file")):
        with pytest.raises(FileNotFoundError, match=message):
            fixed_scan(word)
    sequence = tmp_path / "07" / "velodyne"
    sequence.mkdir(parents=True)
    assert name_of_drive(sequence) == "sequence 07"
    (tmp_path / "SIMULATED.json").write_text("{}")
    assert name_of_drive(sequence) == "sequence 07 (simulated)"
    (tmp_path / "none").mkdir()
    with pytest.raises(ValueError, match="no scans in"):
        scans_of_folder(tmp_path / "none")


def test_copies_have_the_points_asked_for_and_voxels_of_their_own() -> None:
    sizes = sizes_of_drive(CLOUD, 5)
    assert sorted(sizes) == [200, 250, 300, 350, 400]
    assert sizes != sorted(sizes), "sizes are mixed"
    made = copies(CLOUD, [400, 400, 300, 0])
    assert [len(one.points) for one in made] == [400, 400, 300, 0]
    assert not torch.equal(made[0].points, made[1].points)
    again = copies(CLOUD, [400])[0].points
    assert torch.equal(made[0].points, again), "a number decides all of it"
    widths = [(one.points.amax(0) - one.points.amin(0))[2] for one in made[:3]]
    height = CLOUD.points[:, 2].max() - CLOUD.points[:, 2].min()
    assert all(0.9 * height < width < 1.06 * height for width in widths), "turned about z"
    assert len(part_of(CLOUD, 100).points) == 100
    assert part_of(CLOUD, 1000) is CLOUD
    with pytest.raises(ValueError, match="fewer than 401"):
        clouds_of_cells(CLOUD, [7, 401])


def test_pinned_space_grows_and_is_kept() -> None:
    space = HostSpace()
    first = space.take(torch.arange(6.0).view(2, 3))
    assert first.tolist() == [[0, 1, 2], [3, 4, 5]]
    second = space.take(torch.ones(2))
    assert first.data_ptr() == second.data_ptr()


TIMELINE = (
    *(("Memcpy HtoD", 1.0), ("elementwise_floor", 2.0), ("pack_cells", 3.0), ("radix_pass", 4.0)),
    *(("level_keys", 5.0), ("radix_pass", 6.0), ("windowed_search", 7.0), ("fill", 8.0)),
    *(("reduce_points", 2.0), ("mask_keys", 9.0), ("radix_pass", 10.0)),
    *(("tile_lists", 11.0), ("indexFuncLargeIndex", 12)),
    *(("implicit_gemm", 100.0), ("finish_kernel", 1.0), ("nvjet_sm90_badd", 3.0)),
    *(("implicit_gemm", 200.0), ("finish_kernel", 2.0), ("nvjet_sm90", 50.0), ("copy", 5.0)),
)
LAYERS = [Layer(1, True, 10, 10, 30, 4, 8, 864), Layer(2, True, 10, 5, 10, 8, 8, 512)]


def test_kernels_belong_to_stages_by_name_and_order() -> None:
    timeline = [KernelTime(name, 1e3 * ms, 1) for name, ms in TIMELINE]
    assert by_stage(timeline, LAYERS) == {
        "copy": 1.0,
        "sort and pack": 9.0,
        "levels": 11.0,
        "maps": 15.0,
        "tiles": 30.0,
        "voxel features": 14.0,
        "layers /1": 104.0,
        "layers /2": 202.0,
        "head and output": 55.0,
    }
    assert by_stage(timeline, [*LAYERS, *LAYERS])["layers"] == 306.0


def test_a_floor_is_bytes_or_arithmetic_stage_by_stage() -> None:
    scan = Points.of(CLOUD, "voxel")
    gate = Gate(of_latency(model=["minkunet"], width=1.0), "minkunet", CLOUD)
    found = anatomy(gate.eager.network, scan)
    assert (found.points, found.channels, found.levels[1]) == (400, 4, 400)
    assert len(found.mapped) == 42
    assert len(found.layers) == 42 + 7, "first blocks whose channels change have a shortcut"
    assert found.head == 400 * (96 + 19) + 96 * 19
    floors = found.floors("NVIDIA H200", torch.float16)
    assert floors is not None
    assert list(floors)[:6] == [
        *("copy", "sort and pack", "levels", "maps", "tiles", "voxel features")
    ]
    assert floors["copy"] == pytest.approx(1e3 * 2 * 400 * (12 + 8) / 4.2e12)
    assert floors["head and output"] == pytest.approx(1e3 * 2 * found.head / 4.2e12)
    assert found.floors("a toaster", torch.float16) is None
    one = Anatomy(1, 4, (Layer(1, True, 9, 9, 10**9, 100, 100, 10**4),), {1: 9}, ((9, 27),), 9, 0)
    least = one.floors("NVIDIA H200", torch.float16)
    assert least is not None
    assert least["layers /1"] == pytest.approx(1e3 * 2 * 1e13 / 7.2e14)


def test_stages_have_rows_of_their_own(
    monkeypatch: pytest.MonkeyPatch, clock: SimpleNamespace
) -> None:
    seen = [KernelTime("pack_cells", 3e3, 1), KernelTime("level_keys", 1e3, 1)]
    monkeypatch.setattr(cases, "middle_timeline", lambda *_: seen)
    rows = rows_of(FIGURES, "latency_stages", of_latency())
    assert [(row.params or {})["stage"] for row in rows] == ["whole", "sort and pack", "levels"]
    assert {(row.what, row.checked) for row in rows} == {("stage", True)}
    floors = {"copy": 0.5, "sort and pack": 0.25}
    task = Task(Slow(clock, 0.01), SCANS[:1], floors=floors)
    whole, pack, levels = by_stages(task, of_latency(), False)
    assert (whole["wall_ms"], whole["floor_ms"]) == (1.0, 0.75)
    assert (pack["gpu_busy_ms"], pack["floor_ms"]) == (3.0, 0.25)
    assert (levels["gpu_busy_ms"], levels["floor_ms"]) == (1.0, None)


def test_lines_are_those_that_a_device_serves() -> None:
    assert [line.name for line in lines_on(CPU, LINES)] == ["eager", "torchsparse", "minuet"]
    gpu = lines_on(torch.device("cuda"), LINES)
    assert [line.name for line in gpu] == list(LINES)
    assert gpu[0].is_graph


def test_other_engines_stand_beside_ours_in_the_chart() -> None:
    fields: Any = {"dtype": "float16", "model": "minkunet", "checked": True, "figure": "latency"}
    rows = [
        Row("network", "kitti0_005", "graph", wall_ms=2.0, params={"mode": mode}, **fields)
        for mode in (DEVICE, HOST)
    ]
    peer = {"what": "network", "workload": "kitti0_005", "model": "minkunet", "dtype": "fp16"}
    peers = [
        peer | {"engine": "spira", "variant": variant, "wall_ms": ms}
        for variant, ms in (("artifact", 9.0), ("again", 8.0))
    ]
    device, host = charts(FIGURES[0].views[:1], rows, peers)
    (panel,), (other,) = device.panels, host.panels
    heights = {name: [p.y for p in points] for name, points in panel.series.items()}
    assert heights == {"graph": [2.0], f"spira{AUTHORS}": [8.0]}
    assert list(other.series) == ["graph"], "theirs is a time on the device"
    (alone,) = charts(FIGURES[0].views[:1], rows[:1])[0].panels
    assert list(alone.series) == ["graph"]


def test_mistakes_in_options_are_named() -> None:
    for fields, message in (
        ({"model": ["vgg"]}, "--model vgg: must be one of minkunet"),
        ({"line": ["tensorrt"]}, "--line tensorrt: must be one of graph"),
        ({"geometry": "mesh"}, "--geometry mesh: must be one of voxel"),
        ({"batch": "1,x"}, "--batch 1,x: must be whole numbers"),
        ({"drive": Path("/nowhere")}, "--drive"),
        ({"workload": ["nowhere.npz"]}, "--workload: workload nowhere.npz"),
    ):
        with pytest.raises((ValueError, FileNotFoundError), match=message):
            LatencySetting(device="cpu", **fields).resolve()  # type: ignore[arg-type]


def test_a_wrong_answer_fails_whatever_the_size() -> None:
    gate = Gate(of_latency(), "sparse_resnet", CLOUD)
    wrong = SimpleNamespace(outputs=lambda answer: [2 * t for t in gate.eager.outputs(answer)])
    runner: Any = lambda scan: gate.eager(scan)  # noqa: E731
    runner.outputs = wrong.outputs
    with pytest.raises(CheckFailed, match=r"on 400 points .* differ by"):
        gate.agreement(ROW, runner, gate.scan(CLOUD))
    assert not list(run([], of_latency()))
