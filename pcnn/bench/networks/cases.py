"""Networks on scenes: what they are held against, and the calls that are timed."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from pcnn.bench.conformance import check_engine
from pcnn.bench.engines import Entry
from pcnn.bench.harness import Calls, rounded
from pcnn.bench.installed.network import PeerWork
from pcnn.bench.installed.peer import Peer, PeerEntry, require_dtype
from pcnn.bench.layers.layer import products_of, torch_dtype
from pcnn.bench.layers.parts import by_part
from pcnn.bench.networks.models import KERNEL_SIZE, make_network, settle_norms
from pcnn.bench.networks.rounding import Rounded
from pcnn.bench.networks.work import TRAINING, Cells, Input, Work
from pcnn.bench.place import Params
from pcnn.bench.rows import Row
from pcnn.bench.run import Case, Checked, Columns, Measure, middle_trace, part_columns, run, whole
from pcnn.bench.scenes import Scene, aggregated
from pcnn.bench.setting import NetworksSetting, Setting
from pcnn.bench.trace import Trace, trace
from pcnn.bench.verify import bound_of, check_network, rms
from pcnn.dataflows import Blocked
from pcnn.maps import SortedSearch
from pcnn.maps.radius import RadiusSearch
from pcnn.ops.engine import Engine, resolve

#: Plain torch in the dtype that is measured, on every device and under autocast.
PLAIN_ENGINE = Engine("plain", SortedSearch(), Blocked(), RadiusSearch())
#: Draws of the errors that a network is held to.
DRAWS = 2

#: Results in float64, of plain torch, and RMS errors of rounded products, by name.
Standards = tuple[dict[str, Tensor], dict[str, Tensor], dict[str, float]]


class NetworkOptions(Protocol):
    """The setting of a suite that runs networks."""

    @property
    def dtype_name(self) -> str:
        """Name of the dtype."""

    @property
    def where(self) -> torch.device:
        """The device."""

    @property
    def width(self) -> float:
        """Factor on all channels."""


@dataclass(frozen=True)
class NetworkSize:
    """A network in one of its sizes, on so many clouds.

    Args:
        model: name of the network.
        size: of its kernels; ``None``: its own.
        batches: clouds in the batch.
        width: factor on all channels.
        scans: that are aggregated in a cloud.
    """

    model: str
    size: int | None = None
    batches: int = 1
    width: float = 1.0
    scans: int = 1

    @property
    def kernel_size(self) -> int:
        """Size of the kernels that name the network."""
        return KERNEL_SIZE[self.model] if self.size is None else self.size

    @property
    def params(self) -> dict[str, int | float]:
        """Fields that distinguish its rows from the network's own."""
        found: dict[str, int | float] = {} if self.size is None else {"K": self.size}
        others = {"B": self.batches, "width": self.width, "scans": self.scans}
        return found | {name: value for name, value in others.items() if value != 1}


class Standard:
    """The reference for the engines' results: one network on the check cells of one scene."""

    def __init__(self, setting: NetworkOptions, size: NetworkSize, cells: Input) -> None:
        self.setting, self.size, self.cells = setting, size, cells
        self.dtype = torch_dtype(setting.dtype_name)
        self.network = self.made(resolve("reference"))
        settle_norms(self.network, cells.on(self.network, backward=False))
        self.state = self.network.state_dict()
        self._found: dict[str, Standards] = {}

    def made(self, engine: Engine) -> Any:
        """The network of an engine, with weights of its own."""
        setting = self.setting
        size = self.size.kernel_size
        width = setting.width * self.size.width
        return make_network(self.size.model, engine, size, width, setting.where)

    def work(self, engine: Engine | Peer, mode: str, cells: Input) -> Work:
        """The network of an engine with the common weights, ready to be called.

        Raises:
            CheckFailed: the engine does not pass the whole check of its builder and dataflows.
            ValueError: another package that has no such network.
        """
        if not isinstance(engine, Engine):
            require_dtype(engine, self.setting.dtype_name)
            ours = self._work(resolve("reference"), "train", cells).network
            return PeerWork.of(engine, ours, cells, self.dtype, mode in TRAINING)
        check_engine(engine, self.setting.where, cells.are_points)
        return self._work(engine, mode, cells)

    def _work(self, engine: Engine, mode: str, cells: Input) -> Work:
        network = self.made(engine)
        network.load_state_dict(self.state)
        network.eval()
        return Work(network if mode in TRAINING else network.to(self.dtype), cells, self.dtype)

    def results(self, mode: str) -> Standards:
        """Results in float64, of plain torch in the dtype measured, and errors of rounding."""
        kind = "train" if mode in TRAINING else "infer"
        if kind not in self._found:
            truth = self._wide(resolve("reference"), kind)
            plain = self.work(PLAIN_ENGINE, kind, self.cells)
            self._found[kind] = truth, plain.results(kind), self._rounded(kind, truth)
        return self._found[kind]

    def _wide(self, engine: Engine, kind: str) -> dict[str, Tensor]:
        network = copy.deepcopy(self._work(engine, kind, self.cells).network).to(torch.float64)
        return Work(network, self.cells, torch.float64).results(kind)

    def _rounded(self, kind: str, truth: dict[str, Tensor]) -> dict[str, float]:
        """By name, the largest RMS error of several draws of errors at the bound of a product."""
        flow = Rounded(error=bound_of(self.setting.dtype_name))
        engine = Engine("rounded", SortedSearch(), flow, RadiusSearch())
        errors = dict.fromkeys(truth, 0.0)
        device = self.setting.where
        for draw in range(DRAWS):
            with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
                torch.manual_seed(draw)
                found = self._wide(engine, kind)
            for name, expected in truth.items():
                errors[name] = max(errors[name], rms(found[name] - expected))
        return errors

    def forget(self) -> None:
        """Give the results back; they are computed again when they are needed."""
        self._found.clear()


def network_rows(
    setting: NetworksSetting,
    figure: str,
    sizes: Sequence[NetworkSize] | None = None,
    modes: Sequence[str] | None = None,
    entries: Sequence[Entry] | None = None,
    measure: Measure | None = None,
) -> Iterator[Row]:
    """Check, then time, every network on every scene.

    A large scene is checked on a part of it; then the setting ``checked_on`` says so.

    Args:
        setting: what is measured, and how.
        figure: name of the figure.
        sizes: networks of the figure; ``None``: those of the setting.
        modes: modes of the figure; ``None``: the setting's.
        entries: engines and their settings; ``None``: the setting's engines.
        measure: makes rows of the `Work`; ``None``: its calls are timed.
    """
    own: list[PeerEntry] = [(one, {}) for one in setting.compared]
    engines = own if entries is None else entries
    chosen = setting.modes if modes is None else modes
    for scene in setting.scenes:
        for size in sizes or [NetworkSize(name) for name in setting.models]:
            with products_of(setting.dtype_name):
                cases = _cases(setting, figure, scene, size, chosen, engines, measure)
                yield from run(cases, setting)


def _cases(
    setting: NetworksSetting,
    figure: str,
    scene: Scene,
    size: NetworkSize,
    modes: Sequence[str],
    entries: Sequence[PeerEntry],
    measure: Measure | None,
) -> Iterator[Case]:
    cells, to_check = cells_of(setting, scene, size)
    standard = Standard(setting, size, to_check)
    for engine, params in entries:
        for mode in modes:
            said: dict[str, Any] = {"mode": mode, **size.params, **params}
            if cells.downsampling != "floor":
                said["sites"] = cells.downsampling
            if to_check is not cells:
                said["checked_on"] = f"{to_check.cells.shape[0]} voxels"
            row = network_row(setting, scene.name, engine.name, size.model, figure, said)
            row = replace(row, n=cells.cells.shape[0])

            def check(row: Row = row, engine: Engine | Peer = engine, mode: str = mode) -> Checked:
                work = standard.work(engine, mode, to_check)
                if isinstance(engine, Engine):
                    work.compile_ahead(mode)
                proof = check_network(row, work.results(mode), *standard.results(mode))
                if to_check is not cells:
                    work = work.elsewhere(cells)
                    if isinstance(engine, Engine):  # sizes decide how products are cut
                        work.compile_ahead(mode)
                return proof, lambda: work if measure else work.calls(mode)

            yield Case(row, check, measure or timed)


def timed(calls: Calls, setting: Setting, count: bool, warmup: int = 3) -> Iterator[Columns]:
    """One row with both times of a network: of the wall, and on a GPU always that in kernels.

    Eager networks are often issued more slowly than the device runs them, and most of them wait for
    the device once, so that no spin hides the gaps. The wall time then tells of the host.
    """
    (columns,) = whole(calls, setting, False, warmup)
    if setting.where.type == "cuda":
        seen = middle_trace([trace(calls(0), setting.where) for _ in range(3)])
        if seen.timeline:  # empty where CUPTI is not served
            waits = max(columns["syncs"], seen.syncs)
            found = {"launches": seen.launches, "syncs": waits}
            columns = {**columns, **rounded(gpu_busy_ms=seen.busy_ms), **found}
    yield columns


def parts(work: Work, setting: Setting, count: bool) -> Iterator[Columns]:
    """A row a part of a network, read off traces of inference.

    The part ``mapping`` is the time that inference from cells takes beyond the network on planned
    input.
    """
    all_of_it, planned = (_traced(setting, work.calls(mode)) for mode in ("infer", "forward"))
    mapping = {"mapping": max(0.0, all_of_it.busy_ms - planned.busy_ms)}
    yield from part_columns(mapping | by_part(planned.timeline))


def _traced(setting: Setting, calls: Calls) -> Trace:
    calls(0)()  # compiles, and fills the allocator
    return middle_trace([trace(calls(0), setting.where) for _ in range(3)])


def network_row(
    setting: NetworkOptions, workload: str, engine: str, model: str, figure: str, params: Params
) -> Row:
    """A row of a network, without times."""
    return Row(
        "network",
        workload,
        engine,
        dtype=setting.dtype_name,
        model=model,
        figure=figure,
        params=dict(params),
    )


def cells_of(setting: NetworksSetting, scene: Scene, size: NetworkSize) -> tuple[Cells, Cells]:
    """Cells that a network is timed on, and cells that it is checked on: few enough."""
    grid, device = scene.grid.to(setting.where), setting.where
    if size.scans > 1:
        grid = aggregated(grid, size.scans)
    cells, rows = Cells.of(grid, device, size.batches), setting.check_voxels // size.batches
    if grid.rows <= rows:
        return cells, cells
    part = replace(grid, keys=grid.keys[:rows], inverse=None)  # they lie side by side
    return cells, Cells.of(part, device, size.batches)
