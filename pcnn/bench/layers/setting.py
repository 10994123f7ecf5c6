"""Which layers a run of the suite measures, and how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from pcnn.bench.scenes import GENERATED_MARK, Scene
from pcnn.geometry import Kernel
from pcnn.ops.engine import Engine

#: What is timed: on a map whose layouts are there, or with a map from the sorted keys alone.
KINDS = ("layer", "train", "map+layer", "map+train")
#: Largest channels and kernel sizes of a layer that is measured.
MOST_CHANNELS, MOST_SIZE = 4096, 63
#: Those with backward; ``backward`` is the second half of ``train`` alone.
BACKWARD = ("backward", "train", "map+train")
#: Those that build the map in the measured time.
WITH_MAP = ("map+layer", "map+train")


@dataclass(frozen=True)
class LayerShape:
    """Channels and kernel of a convolution.

    Args:
        c_in: input channels.
        c_out: output channels.
        size: kernel size, the same along all axes.
        stride: stride, likewise.
        groups: groups of channels.
    """

    c_in: int
    c_out: int
    size: int
    stride: int = 1
    groups: int = 1

    @property
    def kernel(self) -> Kernel:
        """The relation."""
        return Kernel.of(self.size, self.stride)

    @classmethod
    def parse(cls, text: str) -> LayerShape:
        """Read ``c_in:c_out:size`` or ``c_in:c_out:size:stride``.

        Raises:
            ValueError: something else.
        """
        parts = text.split(":")
        if len(parts) not in (3, 4) or not all(p.isdecimal() and int(p) for p in parts):
            raise ValueError(
                f"{text}: must be c_in:c_out:size or c_in:c_out:size:stride, as in 16:32:3"
            )
        if max(map(int, parts[:2])) > MOST_CHANNELS or max(map(int, parts[2:])) > MOST_SIZE:
            raise ValueError(
                f"{text}: at most {MOST_CHANNELS:,} channels, and size and stride {MOST_SIZE}"
            )
        return cls(*map(int, parts))


#: Layers that the papers' networks are made of.
STANDARD = tuple(
    LayerShape(*shape)
    for shape in (
        (4, 16, 3),
        (16, 16, 3),
        (32, 32, 3),
        (64, 64, 3),
        (64, 128, 3),
        (128, 128, 3),
        (256, 256, 3),
        (16, 16, 5),
        (32, 32, 5),
        (64, 64, 5),
    )
)

#: By layer, the kinds of rows that are wanted of it.
Wanted = Mapping[LayerShape, Sequence[str]]


@dataclass(frozen=True)
class Setting:
    """What a run of the suite measures, and how.

    Args:
        device: where.
        scenes: voxels.
        engines: those to compare.
        layers: shapes of the convolutions.
        dtype: of features and weights; ``tf32``: float32 whose products may be rounded.
        kinds: rows of every layer, names in `KINDS`.
        repeats: calls that count.
        runs: times that everything is measured, engine by engine in turn.
        budget_s: seconds for every kind of time [s].
        count: count launches and syncs, in the first run.
        places: by workload, the layers and kinds measured there; ``None``: all everywhere.
    """

    device: torch.device
    scenes: Sequence[Scene]
    engines: Sequence[Engine]
    layers: Sequence[LayerShape] = STANDARD
    dtype: str = "float32"
    kinds: Sequence[str] = KINDS
    repeats: int = 20
    runs: int = 1
    budget_s: float = 1.0
    count: bool = True
    places: Mapping[str, Wanted] | None = None

    def wanted(
        self, workload: str, layers: Sequence[LayerShape] | None, kinds: Sequence[str] | None
    ) -> dict[Kernel, list[tuple[LayerShape, list[str]]]]:
        """Layers and kinds to measure on a scene, by kernel.

        Args:
            workload: name of the scene.
            layers: those of a figure; ``None``: the setting's.
            kinds: those of a figure; ``None``: the setting's.
        """
        by_kernel: dict[Kernel, list[tuple[LayerShape, list[str]]]] = {}
        known = None
        if self.places is not None and layers is None:
            known = self.places.get(workload.removesuffix(GENERATED_MARK), {})
        for shape in self.layers if layers is None else layers:
            chosen = list(self.kinds if kinds is None else kinds)
            if known is not None:
                chosen = [kind for kind in chosen if kind in known.get(shape, ())]
            if chosen:
                by_kernel.setdefault(shape.kernel, []).append((shape, chosen))
        return by_kernel
