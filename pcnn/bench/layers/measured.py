"""Rows of the suite: every layer checked once, then timed in every way and run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pcnn.bench import oracle
from pcnn.bench.harness import measure
from pcnn.bench.layers.layer import NAMES, Layer, Operands, floor_ms, products_of
from pcnn.bench.layers.setting import BACKWARD, LayerShape, Setting
from pcnn.bench.rows import Row
from pcnn.bench.scenes import Scene
from pcnn.bench.verify import Configuration, Proof, check_values
from pcnn.geometry import Geometry, Kernel
from pcnn.ops.engine import Engine

Params = Mapping[str, int | float | str]
#: An engine, and the settings that tell its rows from others'.
Entry = tuple[Engine, Params]


@dataclass(frozen=True, eq=False)
class Place:
    """A scene and a kernel, with the oracle's triplets for all layers.

    Args:
        workload: name of the scene.
        grid: its voxels or points, on the device.
        kernel: the relation.
        pairs: rows (j, i) of every slot.
        n_out: output sites.
    """

    workload: str
    grid: Geometry
    kernel: Kernel
    pairs: list[oracle.Pair]
    n_out: int

    @classmethod
    def of(cls, scene: Scene, kernel: Kernel, device: torch.device) -> Place:
        """Place of a scene on a device."""
        grid = scene.grid.to(device)
        target = grid.strided(kernel)
        return cls(scene.name, grid, kernel, oracle.triplets(grid, target, kernel), target.rows)

    @property
    def triplets(self) -> int:
        """Number of triplets T."""
        return sum(len(j) for j, _ in self.pairs)

    @property
    def longest(self) -> int:
        """Triplets of the slot that has most: terms of its weights' gradient."""
        return max(len(j) for j, _ in self.pairs)

    def operands(self, shape: LayerShape, dtype: str) -> Operands:
        """Random operands of a layer here."""
        sizes = self.grid.rows, self.n_out, self.kernel.volume
        channels = shape.c_in, shape.c_out
        return Operands.random(sizes, channels, dtype, self.grid.device, shape.groups)

    def truth(self, operands: Operands, backward: bool) -> dict[str, Tensor]:
        """What a layer computes, in float64, by name."""
        x, weight, grad = operands.x, operands.weight, operands.grad
        groups = operands.groups
        dense = weight if groups == 1 else oracle.dense_weight(weight, groups)
        if not backward:
            return {"out": oracle.output(self.pairs, x, dense, self.n_out)}
        found = oracle.products(self.pairs, x, dense, grad)
        truth = {name: getattr(found, name) for name in NAMES}
        if groups > 1:
            truth["grad_weight"] = oracle.grouped_weight(found.grad_weight, groups)
        return truth


@dataclass(frozen=True, eq=False)
class _Admitted:
    """A call that has passed its check, and what its rows say."""

    layer: Layer
    kind: str
    configuration: Configuration
    proof: Proof
    identity: dict[str, Any]


def layer_rows(
    setting: Setting,
    figure: str,
    entries: Sequence[Entry] | None = None,
    layers: Sequence[LayerShape] | None = None,
    kinds: Sequence[str] | None = None,
) -> Iterator[Row]:
    """Check, then time, every layer on every scene.

    What an engine cannot serve, or does wrongly, is a row without times whose setting ``left_out``
    holds the error.

    Args:
        setting: what is measured, and how.
        figure: name of the figure.
        entries: engines and their settings; ``None``: the setting's engines.
        layers: shapes of the figure; ``None``: the setting's.
        kinds: kinds of rows of the figure; ``None``: the setting's.
    """
    chosen = [(engine, {}) for engine in setting.engines] if entries is None else entries
    for scene in setting.scenes:
        for kernel, wanted in setting.wanted(scene.name, layers, kinds).items():
            place = Place.of(scene, kernel, setting.device)
            for shape, names in wanted:
                with products_of(setting.dtype):
                    yield from rows_at(setting, figure, place, shape, names, chosen)


def rows_at(
    setting: Setting,
    figure: str,
    place: Place,
    shape: LayerShape,
    kinds: Sequence[str],
    entries: Sequence[Entry],
) -> Iterator[Row]:
    """Check, then time, a layer at one place; see `layer_rows`.

    Args:
        setting: dtype, device and how often to repeat.
        figure: name of the figure.
        place: sites and their triplets.
        shape: channels and kernel.
        kinds: kinds of rows.
        entries: engines and their settings.
    """
    operands = place.operands(shape, setting.dtype)
    truth = place.truth(operands, any(kind in BACKWARD for kind in kinds))
    admitted: list[_Admitted] = []
    for engine, params in entries:
        layer = None
        for kind in kinds:
            identity = identity_of(setting, place, shape, engine, figure, params)
            try:
                layer = layer or Layer(engine, place.grid, place.kernel, operands)
                configuration = configuration_of(
                    setting, place, shape, engine, {**params, "kind": kind}, kind in BACKWARD
                )
                results = layer.results(kind)
                wanted = {name: truth[name] for name in results}
                proof = check_values(configuration, results, wanted, place.longest)
            except Exception as error:  # a compiler's errors have no base of their own
                reason = f"{type(error).__name__}: {error}"
                yield Row(kind, **{**identity, "params": {**params, "left_out": reason}})
                continue
            admitted.append(_Admitted(layer, kind, configuration, proof, identity))
    del truth  # gigabytes at 600 k voxels and 256 channels
    for run in range(setting.runs):
        for one in admitted:
            measured = measure(
                one.layer.calls(one.kind),
                setting.device,
                repeats=setting.repeats,
                budget_s=setting.budget_s,
                count=setting.count and run == 0,
            )
            one.proof.admit(one.configuration)
            floor = floor_ms(operands, place.triplets, one.kind)
            yield Row(
                one.kind,
                floor_ms=floor,
                run=run if setting.runs > 1 else None,
                checked=True,
                **one.identity,
                **measured.columns(),
            )


def configuration_of(
    setting: Setting,
    place: Place,
    shape: LayerShape,
    engine: Engine,
    params: Params,
    backward: bool = False,
) -> Configuration:
    """What a check of a layer is about.

    Args:
        setting: device and dtype.
        place: workload and kernel.
        shape: channels.
        engine: what computes it.
        params: settings that tell its rows from others'.
        backward: whether gradients are checked too.
    """
    return Configuration(
        engine.name,
        place.workload,
        str(setting.device),
        place.kernel,
        setting.dtype,
        shape.c_in,
        shape.c_out,
        backward,
        params=tuple(sorted(params.items())),
    )


def identity_of(
    setting: Setting, place: Place, shape: LayerShape, engine: Engine, figure: str, params: Params
) -> dict[str, Any]:
    """What a row says of its layer, by the names of the row format."""
    return {
        "workload": place.workload,
        "engine": engine.name,
        "n": place.grid.rows,
        "triplets": place.triplets,
        "dtype": setting.dtype,
        "k": shape.size,
        "stride": shape.stride,
        "c_in": shape.c_in,
        "c_out": shape.c_out,
        "figure": figure,
        "params": dict(params) if params else None,
    }
