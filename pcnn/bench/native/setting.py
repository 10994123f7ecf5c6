"""What a run of the suite measures, and how."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from pcnn.bench.layers.setting import LayerShape
from pcnn.bench.layers.setting import Setting as LayerSetting
from pcnn.bench.native.cloud import Cloud
from pcnn.bench.native.lines import Line
from pcnn.bench.native.rooms import SIMULATED, room

#: The layer of the paper's figures, and the second one that its code was timed on.
PAPER = LayerShape(64, 128, 3)
SECOND = LayerShape(64, 64, 3)
#: All growing rooms together, in result rows.
ROOMS = f"rooms{SIMULATED}"


@dataclass(frozen=True)
class Setting:
    """What a run of the suite measures, and how.

    Args:
        device: where.
        lines: to compare.
        clouds: of files; where there are none, generated rooms stand in.
        dtype: of layers and of inference; training casts to it.
        rooms: how many generated rooms, each another one.
        sizes: points of growing rooms.
        repeats: calls that count.
        budget_s: seconds for every kind of time [s].
        limit_s: seconds after which a figure begins nothing more [s].
        count: count launches and syncs.
        check_points: points of the room that networks are checked on.
        largest: no room of the search for the largest cloud has more points.
        step_points: points of the one large training step.
        memory_gb: of the device that may be taken, ``None``: all of it [GB].
        width: factor on the channels of ResNet18.
    """

    device: torch.device
    lines: Sequence[Line]
    clouds: Sequence[Cloud] = ()
    dtype: str = "float32"
    rooms: int = 10
    sizes: Sequence[int] = (20_000, 50_000, 100_000, 300_000, 1_000_000)
    repeats: int = 10
    budget_s: float = 1.0
    limit_s: float = 600.0
    count: bool = False
    check_points: int = 50_000
    largest: int = 400_000_000
    step_points: int = 20_000_000
    memory_gb: float | None = None
    width: float = 1.0

    @property
    def of_layers(self) -> LayerSetting:
        """The same for the suite of single layers."""
        return LayerSetting(
            self.device,
            (),
            (),
            dtype=self.dtype,
            repeats=self.repeats,
            budget_s=self.budget_s,
            count=self.count,
        )

    def scans(self, points: int = 100_000) -> Iterator[Cloud]:
        """The clouds of files on the device; without any, the first room of so many points."""
        if not self.clouds:
            yield room(0, min(points, max(self.sizes)), self.device)
        for cloud in self.clouds:
            yield cloud.to(self.device)

    def growing(self) -> Iterator[tuple[dict[str, int], Cloud]]:
        """Every room in all sizes under one name, with its number and the points asked for."""
        for number in range(self.rooms):
            for points in self.sizes:
                cloud = replace(room(number, points, self.device), name=ROOMS)
                yield {"room": number, "points": points}, cloud

    def chosen(self, *names: str) -> list[Line]:
        """Those of the lines that have these names."""
        return [line for line in self.lines if line.name in names]
