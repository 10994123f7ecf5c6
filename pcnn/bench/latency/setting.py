"""Options of the suite ``latency``, as `pcnn.bench.setting` has those of the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pcnn.bench.setting import (
    TypedSetting,
    Words,
    chosen_models,
    chosen_names,
    whole_numbers,
    with_option,
)
from pcnn.ranges import Calls, Clouds, Length, Sample, Steps, Width

if TYPE_CHECKING:
    from pcnn.bench.clouds import Cloud
    from pcnn.bench.latency.runners import Line

#: Networks of the suite ``latency``.
MODELS = ("minkunet", "sparse_resnet", "sparse_resnet_large", "resunet")
#: Its lines: the engine ``auto`` as a graph and eager, and the papers' engines both ways.
LINES = (
    *("graph", "eager", "torchsparse", "torchsparse++", "minuet", "spira"),
    *("torchsparse graph", "minuet graph", "spira graph"),
)


@dataclass(frozen=True)
class LatencySetting(TypedSetting):
    """Options of the suite ``latency``."""

    figure: Annotated[
        Words,
        "latency, drive, throughput, stages, same or replays; may be repeated. Default: all.",
    ] = None
    workload: Annotated[
        Words,
        ".npz file with coords (N x 4) or points, a scan of points, or surface_<n>k; may be "
        "repeated.",
    ] = None
    drive: Annotated[
        Path | None,
        "Folder of scans, driven through in the order of their names. Default: turned, thinned and "
        "cut copies of the workloads.",
    ] = None
    voxel_size: Annotated[
        Length | None, "Edge of a voxel in metres. Default: what the file says, or 0.05."
    ] = None
    model: Annotated[
        Words,
        "minkunet, sparse_resnet, sparse_resnet_large, resunet, spunet, spvcnn, litept or "
        "voxel_resbackbone; may be repeated. Default: the first four.",
    ] = None
    line: Annotated[
        Words,
        "graph, eager, torchsparse, torchsparse++, minuet, spira, or 'ENGINE graph' of "
        "torchsparse, minuet and spira; may be repeated. Default: all.",
    ] = None
    geometry: Annotated[str, "voxel or native."] = "voxel"
    width: Annotated[Width, "Factor on all channels; the papers have 1."] = 1.0
    repeats: Annotated[Calls, "Timed calls."] = 200
    scans: Annotated[Clouds, "Scans of a drive of copies, from half a scan to all of it."] = 50
    batch: Annotated[str, "Clouds in a call of throughput."] = "1,4,16"
    same: Annotated[Clouds, "Clouds on which graph and eager are compared."] = 200
    replays: Annotated[Steps, "Calls over which memory is watched."] = 10_000
    check: Annotated[Sample, "Points of a scan that networks are held to float64 on."] = 10_000

    @cached_property
    def clouds(self) -> list[Cloud]:
        """The fixed scans."""
        from pcnn.bench.latency.scans import fixed_scan

        words = self.workload or ["surface_20k"]
        return with_option("--workload", lambda: [fixed_scan(w, self.voxel_size) for w in words])

    @cached_property
    def driven(self) -> list[Cloud]:
        """The scans of the folder, if one is given."""
        from pcnn.bench.latency.scans import scans_of_folder

        folder = self.drive
        if folder is None:
            return []
        return with_option("--drive", lambda: scans_of_folder(folder, self.voxel_size))

    @cached_property
    def models(self) -> Sequence[str]:
        """Names of networks."""
        return chosen_models(self.model, MODELS)

    @cached_property
    def lines(self) -> list[Line]:
        """The runners that are compared."""
        from pcnn.bench.latency.runners import lines_on

        return lines_on(self.where, chosen_names("--line", self.line, LINES), self.is_native)

    @cached_property
    def is_native(self) -> bool:
        """True on native points."""
        return chosen_names("--geometry", [self.geometry], ("voxel", "native")) == ["native"]

    @cached_property
    def batches(self) -> list[int]:
        """Clouds in a call of throughput."""
        return whole_numbers("--batch", self.batch, 1000)
