"""Rows of the suite: every network checked once, then timed in every mode and run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from pcnn.bench.conformance import check_engine
from pcnn.bench.harness import measure
from pcnn.bench.layers.layer import products_of, torch_dtype
from pcnn.bench.networks.check import check_network, rms
from pcnn.bench.networks.models import (
    KERNEL_SIZE,
    MODELS,
    converted,
    make_network,
    settle_norms,
    with_state,
)
from pcnn.bench.networks.rounding import Rounded
from pcnn.bench.networks.work import MODES, TRAINING, Cells, Input, Work
from pcnn.bench.rows import Row
from pcnn.bench.scenes import Scene
from pcnn.bench.verify import Configuration, Proof, bound_of
from pcnn.dataflows import Blocked
from pcnn.geometry import Kernel, VoxelGrid
from pcnn.maps import SortedSearch
from pcnn.maps.radius import RadiusSearch
from pcnn.ops.engine import Engine, resolve

#: Plain torch in the dtype that is measured, on every device and under autocast.
PLAIN_ENGINE = Engine("plain", SortedSearch(), Blocked(), RadiusSearch())

#: Draws of the errors that a network is held to.
DRAWS = 2

#: Results in float64, of plain torch, and RMS errors of rounded products, by name.
Standards = tuple[dict[str, Tensor], dict[str, Tensor], dict[str, float]]

Params = Mapping[str, int | float | str]
#: An engine, and the settings that tell its rows from others'.
Entry = tuple[Engine, Params]


@dataclass(frozen=True)
class Variant:
    """A network in one of its sizes, on so many clouds.

    Args:
        model: name of the network.
        size: of its kernels; ``None``: its own.
        batches: clouds in the batch.
    """

    model: str
    size: int | None = None
    batches: int = 1

    @property
    def kernel_size(self) -> int:
        """Size of the kernels that name the network."""
        return KERNEL_SIZE[self.model] if self.size is None else self.size

    @property
    def params(self) -> dict[str, int]:
        """What tells its rows from the network's own."""
        found = {} if self.size is None else {"K": self.size}
        return found | ({} if self.batches == 1 else {"B": self.batches})


@dataclass(frozen=True)
class Setting:
    """What a run of the suite measures, and how.

    Args:
        device: where.
        scenes: voxels.
        engines: those to compare.
        models: names of networks.
        modes: names in `pcnn.bench.networks.work.MODES`.
        dtype: of inference; training computes in it under autocast.
        width: factor on the channels of all networks.
        repeats: calls that count.
        runs: times that everything is measured, engine by engine in turn.
        budget_s: seconds for every kind of time [s].
        count: count launches and syncs, in the first run.
        check_voxels: a scene of more sites is checked on so many of them [voxels].
        sizes: voxels of generated scenes of growing size, where a figure wants them.
        kernel_sizes: of figures over the kernel size.
    """

    device: torch.device
    scenes: Sequence[Scene]
    engines: Sequence[Engine]
    models: Sequence[str] = tuple(MODELS)
    modes: Sequence[str] = MODES
    dtype: str = "float32"
    width: float = 1.0
    repeats: int = 22
    runs: int = 1
    budget_s: float = 3.0
    count: bool = True
    check_voxels: int = 200_000
    sizes: Sequence[int] = (10_000, 50_000, 100_000, 500_000, 1_000_000)
    kernel_sizes: Sequence[int] = (3, 7, 13)


@dataclass(frozen=True, eq=False)
class _Admitted:
    """A call that has passed its check, and what its rows say."""

    work: Work
    mode: str
    configuration: Configuration
    proof: Proof
    identity: dict[str, Any]


class Standard:
    """What the engines' results are held against: one network on one scene's check cells.

    Args:
        setting: device, dtype and width.
        variant: the network.
        cells: what it is given for the check.
    """

    def __init__(self, setting: Setting, variant: Variant, cells: Input) -> None:
        self.setting, self.variant, self.cells = setting, variant, cells
        self.dtype = torch_dtype(setting.dtype)
        self.network = self.made(resolve("reference"))
        settle_norms(self.network, cells.on(self.network, backward=False))
        self.state = self.network.state_dict()
        self._found: dict[str, Standards] = {}

    def made(self, engine: Engine) -> Any:
        """The network of an engine, with weights of its own."""
        setting = self.setting
        size = self.variant.kernel_size
        return make_network(self.variant.model, engine, size, setting.width, setting.device)

    def work(self, engine: Engine, mode: str, cells: Input) -> Work:
        """The network of an engine with the common weights, ready to be called.

        Raises:
            CheckFailed: the engine does not pass the whole check of its builder and dataflows.
        """
        check_engine(engine, self.setting.device, cells.are_points)
        return self._work(engine, mode, cells)

    def _work(self, engine: Engine, mode: str, cells: Input) -> Work:
        network = with_state(self.made(engine), self.state)
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
        network = converted(self._work(engine, kind, self.cells).network, torch.float64)
        return Work(network, self.cells, torch.float64).results(kind)

    def _rounded(self, kind: str, truth: dict[str, Tensor]) -> dict[str, float]:
        """By name, the largest RMS error of several draws of errors at the bound of a product."""
        flow = Rounded(error=bound_of(self.setting.dtype))
        engine = Engine("rounded", SortedSearch(), flow, RadiusSearch())
        errors = dict.fromkeys(truth, 0.0)
        device = self.setting.device
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
    setting: Setting,
    figure: str,
    variants: Sequence[Variant] | None = None,
    modes: Sequence[str] | None = None,
    entries: Sequence[Entry] | None = None,
) -> Iterator[Row]:
    """Check, then time, every network on every scene.

    What an engine cannot serve, or does wrongly, is a row without times whose setting ``left_out``
    holds the error. A large scene is checked on a part of it; then ``checked_on`` says so.

    Args:
        setting: what is measured, and how.
        figure: name of the figure.
        variants: networks of the figure; ``None``: those of the setting.
        modes: modes of the figure; ``None``: the setting's.
        entries: engines and their settings; ``None``: the setting's engines.
    """
    chosen = [Variant(name) for name in setting.models] if variants is None else variants
    for scene in setting.scenes:
        for variant in chosen:
            with products_of(setting.dtype):
                yield from _of_network(setting, figure, scene, variant, modes, entries)


def _of_network(
    setting: Setting,
    figure: str,
    scene: Scene,
    variant: Variant,
    modes: Sequence[str] | None,
    entries: Sequence[Entry] | None,
) -> Iterator[Row]:
    cells, to_check = cells_of(setting, scene, variant)
    standard = Standard(setting, variant, to_check)
    admitted: list[_Admitted] = []
    engines = [(engine, {}) for engine in setting.engines] if entries is None else entries
    for engine, params in engines:
        for mode in setting.modes if modes is None else modes:
            said: dict[str, Any] = {"mode": mode, **variant.params, **params}
            if to_check is not cells:
                said["checked_on"] = f"{to_check.cells.shape[0]} voxels"
            identity = identity_of(setting, scene, variant, engine, figure, cells)
            try:
                configuration = configuration_of(setting, scene, variant, engine, said)
                work = standard.work(engine, mode, to_check)
                proof = check_network(configuration, work.results(mode), *standard.results(mode))
                work = work if to_check is cells else Work(work.network, cells, work.dtype)
            except Exception as error:  # a compiler's errors have no base of their own
                said["left_out"] = f"{type(error).__name__}: {error}"
                yield Row("network", params=said, **identity)
                continue
            identity["params"] = said
            admitted.append(_Admitted(work, mode, configuration, proof, identity))
    del standard  # float64 results of all modes
    yield from _timed(setting, admitted)


def _timed(setting: Setting, admitted: Sequence[_Admitted]) -> Iterator[Row]:
    for run in range(setting.runs):
        for one in admitted:
            one.proof.admit(one.configuration)
            row = Row("network", run=run if setting.runs > 1 else None, **one.identity)
            try:
                measured = measure(
                    one.work.calls(one.mode),
                    setting.device,
                    repeats=setting.repeats,
                    budget_s=setting.budget_s,
                    count=setting.count and run == 0,
                )
            except (RuntimeError, ValueError) as error:  # out of memory, at the full size only
                reason = f"{type(error).__name__}: {error}"
                yield replace(row, params={**(row.params or {}), "left_out": reason})
                continue
            yield replace(row, checked=True, **measured.columns())


def cells_of(setting: Setting, scene: Scene, variant: Variant) -> tuple[Cells, Cells]:
    """What a network is timed on, and what it is checked on: the same, if there is not too much."""
    grid = scene.grid.to(setting.device)
    cells = Cells.of(grid, setting.device, variant.batches)
    part = _part(grid, setting.check_voxels // variant.batches)
    return cells, cells if part is grid else Cells.of(part, setting.device, variant.batches)


def _part(grid: VoxelGrid, rows: int) -> VoxelGrid:
    """A grid of the first sites, which lie side by side; the grid itself if it has no more."""
    if grid.rows <= rows:
        return grid
    return replace(grid, keys=grid.keys[:rows], inverse=None)


def configuration_of(
    setting: Setting, scene: Scene, variant: Variant, engine: Engine, params: Params
) -> Configuration:
    """What the check and the time of a row have in common."""
    return Configuration(
        engine.name,
        scene.name,
        str(setting.device),
        Kernel.of(variant.kernel_size),
        setting.dtype,
        backward=params["mode"] in TRAINING,
        params=tuple(sorted({**params, "model": variant.model}.items())),
    )


def identity_of(
    setting: Setting,
    scene: Scene,
    variant: Variant,
    engine: Engine,
    figure: str,
    cells: Cells,
) -> dict[str, Any]:
    """What a row says of its network, by the names of the row format."""
    return {
        "workload": scene.name,
        "engine": engine.name,
        "n": cells.cells.shape[0],
        "dtype": setting.dtype,
        "model": variant.model,
        "figure": figure,
    }
