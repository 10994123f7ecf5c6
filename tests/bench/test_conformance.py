"""A dataflow or builder that is wrong in any case is not timed, for any layer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import pcnn
from pcnn.bench import conformance, passed
from pcnn.bench import run as run_file
from pcnn.bench.conformance import check_engine, check_search
from pcnn.bench.layers.cases import layer_rows
from pcnn.bench.mapping.maps import map_case, places
from pcnn.bench.networks.cases import network_rows
from pcnn.bench.run import run
from pcnn.bench.verify import CheckFailed
from pcnn.dataflows.hybrid import Hybrid
from pcnn.geometry import Kernel, KernelMap
from pcnn.geometry.packing import DEFAULT_FORMAT
from pcnn.kernels.recorded import RECORD
from pcnn.maps.conformance import LIMIT, WrongMap, check_builder
from pcnn.maps.radius import RadiusSearch
from pcnn.ops import Engine
from pcnn.ops.conformance import Nonconforming, check_dataflow
from pcnn.ops.conformance_cases import Case
from pcnn.ops.engine import resolve
from tests.bench.faulty import BUILDER_FLAWS, DATAFLOW_FLAWS, Faulty, FaultyBuilder
from tests.bench.settings import SMALL, left_out, of_layers, of_maps, of_networks
from tests.clouds import surface_grid
from tests.engines import BUILDERS, DATAFLOWS, KERNEL_BUILDERS

CPU = torch.device("cpu")
GRID = surface_grid(200)


def engine_of(flaw: str) -> Engine:
    dataflow = Faulty(flaw=flaw, name=f"faulty_{flaw}")
    return replace(resolve("reference"), name="mine", dataflow=dataflow)


def test_cases_of_builders_reach_the_last_cell_of_a_key_that_has_neighbours() -> None:
    DEFAULT_FORMAT.check_bound(LIMIT, 1, "the case")
    with pytest.raises(ValueError, match="holds at most"):
        DEFAULT_FORMAT.check_bound(LIMIT + 1, 1, "a case beyond")


def test_a_transposed_case_goes_from_few_sites_to_many() -> None:
    case = Case(Kernel.of(2, 2), 4, 4)
    down, up = case.map(), replace(case, transposed=True).map()
    assert (down.n_in, down.n_out) == (up.n_out, up.n_in)
    assert down.n_in > down.n_out
    assert str(case) == "k222s222-4-4-g1-float32-n300"
    assert str(replace(case, apart=True)) == f"{case}-apart"


def test_on_a_gpu_kernels_are_compiled_before_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def check(dataflow: object, device: torch.device) -> None:
        launched = RECORD.get()
        order.append("check" if launched is None else "list")
        if launched is not None:
            launched["a launch"] = None  # type: ignore[index]
            raise Nonconforming("nothing was launched")

    def compiled(launches: dict[str, None], device: torch.device) -> Iterator[int]:
        order.extend(launches)
        yield 1
        raise RuntimeError("out of shared memory")

    monkeypatch.setattr(conformance.conformance, "check_dataflow", check)
    monkeypatch.setattr(conformance, "compile_all", compiled)
    conformance.check_dataflow(resolve("reference").dataflow, torch.device("cuda"))
    assert order == ["list", "a launch", "check"]


def test_a_check_that_passed_on_a_gpu_is_kept_until_a_source_changes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(passed, "SOURCES", (tmp_path,))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "a device")
    ran: list[str] = []

    def check() -> None:
        ran.append("ran")
        if len(ran) == 1:
            raise CheckFailed("wrong")

    def runs(what: object, place: str = "cuda") -> int:
        before = len(ran)
        passed.once(what, torch.device(place), check)
        return len(ran) - before

    flow = Hybrid(1)
    with pytest.raises(CheckFailed):  # not kept
        runs(flow)
    assert [runs(flow), runs(flow), runs(Hybrid(2)), runs(flow)] == [1, 0, 1, 0]
    assert [runs(flow, "cpu"), runs(flow, "cpu")] == [1, 1]
    foreign = Faulty(flaw="none", name="theirs")
    assert [runs(foreign), runs(foreign)] == [1, 1]
    (tmp_path / "kernel.cu").write_text("// changed")
    passed.source_digest.cache_clear()
    assert [runs(flow), runs(flow)] == [1, 0]
    passed.source_digest.cache_clear()


@pytest.mark.parametrize("dataflow", DATAFLOWS, ids=lambda d: d.name)
def test_right_dataflows_pass(dataflow) -> None:
    check_dataflow(dataflow, CPU)


@pytest.mark.parametrize(("flaw", "message"), DATAFLOW_FLAWS.items())
def test_a_dataflow_with_one_flaw_is_refused(flaw: str, message: str) -> None:
    with pytest.raises(Nonconforming, match=message) as caught:
        check_dataflow(engine_of(flaw).dataflow, CPU)
    assert f"dataflow 'faulty_{flaw}' fails" in str(caught.value)


@pytest.mark.parametrize("builder", [b for b in BUILDERS if b not in KERNEL_BUILDERS], ids=str)
def test_right_builders_pass(builder) -> None:
    check_builder(builder, CPU)


@pytest.mark.parametrize(("flaw", "message"), BUILDER_FLAWS.items())
def test_a_builder_with_one_flaw_is_refused(flaw: str, message: str) -> None:
    with pytest.raises(WrongMap, match=message) as caught:
        check_builder(FaultyBuilder(flaw), CPU)
    assert "map builder 'faulty_builder' is wrong in" in str(caught.value)


def test_a_refusal_by_name_is_no_fault() -> None:
    class Narrow(Faulty):
        def forward(self, x, w, *args):  # type: ignore[no-untyped-def]
            if w.shape[0] != 27:
                raise ValueError("narrow serves kernels of size 3")
            return super().forward(x, w, *args)

    check_dataflow(Narrow(name="narrow"), CPU)


def test_the_check_leaves_random_numbers_and_tf32_as_they_are() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    torch.backends.cuda.matmul.allow_tf32 = True
    check_dataflow(Faulty(name="faultless"), CPU)
    assert torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    assert torch.equal(torch.rand(3), expected)


def test_nothing_is_timed_that_is_right_here_and_wrong_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run_file, "measure", lambda *args, **_: pytest.fail("timed"))
    for flaw in ("transposed", "epilogue"):
        setting = of_layers(scenes=SMALL, engines=[engine_of(flaw)], what=["layer"])
        (reason,) = left_out(layer_rows(setting, "layers"))
        assert reason.startswith(f"CheckFailed: dataflow 'faulty_{flaw}' fails")
        assert "bound" in reason
    networks = of_networks(engines=[engine_of("transposed")], mode=["infer"])
    (reason,) = left_out(network_rows(networks, "networks"))
    assert "CheckFailed: dataflow 'faulty_transposed' fails" in reason
    maps = of_maps(builders=[FaultyBuilder("even")])
    (place,) = places(maps, [(3, 1)])
    for stages in ((), ("search",)):
        case = map_case(maps, place, FaultyBuilder("even"), "table", "f", {"B": 1}, stages)
        (row,) = run([case], maps)
        assert (row.params or {})["B"] == 1
        (reason,) = left_out([row])
        assert reason.startswith("CheckFailed: map builder 'faulty_builder' is wrong in")
        assert "(0 are allowed)" in reason


def test_the_search_among_points_is_compared_with_all_pairs() -> None:
    class Short(RadiusSearch):
        def build(self, *args: object, **how: object) -> KernelMap:
            built = super().build(*args, **how)  # type: ignore[arg-type]
            in_index, out_index, offsets = built.layout("pairs")
            fewer = offsets.clamp(max=max(0, len(in_index) - 1))
            cut = in_index[:-1], out_index[:-1], fewer, built.n_in, built.n_out
            several = {"one_per_slot": False, "one_per_slot_transposed": False}
            return KernelMap.from_pairs(*cut, **several)

    check_search(RadiusSearch(), CPU)
    with pytest.raises(CheckFailed, match=r"400 points|65 points|1 points"):
        check_search(Short(), CPU)
    check_engine(resolve("pointcnnpp"), CPU, points=True)


@pytest.mark.parametrize("flaw", ["transposed", "weight_gradient"])
def test_tuning_does_not_choose_what_is_right_on_its_samples_only(flaw: str) -> None:
    """Forward products of a kernel of size 3 are all that this tuning looks at."""
    net = pcnn.nn.Sequential(pcnn.nn.Conv3d(4, 8, 3))
    x = pcnn.SparseTensor(torch.randn(GRID.rows, 4), GRID)
    faulty, right = engine_of(flaw).dataflow, resolve("reference").dataflow
    (layer,) = pcnn.tune(net, [x], candidates=[faulty, right], progress=False)
    assert layer.dataflow == right
    with pytest.raises(RuntimeError, match=f"faulty_{flaw}' fails .* bound"):
        pcnn.tune(net, [x], candidates=[faulty], progress=False)
