"""`pcnn simulate`: write simulated data sets in official formats."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pcnn.cli.app import ARGUMENT, App, refusing
from pcnn.cli.options import Progress
from pcnn.messages import say
from pcnn.ranges import Count, Fragments, Natural, Seed, Spacing

if TYPE_CHECKING:
    from pcnn.simulate.simulator import Simulator

app = App(help="Write simulated data sets in official formats; every folder is marked.")


@dataclass(frozen=True, kw_only=True)
class SimulateOptions:
    root: Annotated[Path | None, ARGUMENT, "Folder; one in data/simulated unless given."] = None
    seed: Annotated[Seed, "Seed of shapes, paths and noise."] = 0
    workers: Annotated[Count | None, "Processes; every core unless given."] = None
    progress: Progress = True


@dataclass(frozen=True, kw_only=True)
class KittiOptions(SimulateOptions):
    train_scans: Annotated[Natural, "--scans", "Training scans, sequences 00-07, 09, 10."] = 40
    val_scans: Annotated[Natural, "Validation scans, sequence 08."] = 8
    frame_stride: Annotated[Count, "Frames (10 Hz) from one scan to the next."] = 15


@dataclass(frozen=True, kw_only=True)
class FragmentsOptions(SimulateOptions):
    train_scenes: Annotated[Natural, "--scenes", "Rooms for training."] = 8
    val_scenes: Annotated[Natural, "Rooms for validation."] = 2
    test_scenes: Annotated[Natural, "Rooms for testing, with the benchmark's lists of pairs."] = 2
    fragments: Annotated[Fragments, "Fragments per room."] = 16


@dataclass(frozen=True, kw_only=True)
class RoomsOptions(SimulateOptions):
    rooms: Annotated[Count, "Rooms in each of the six areas."] = 6
    spacing: Annotated[Spacing, "Distance between points, in metres."] = 0.02


def kitti(options: KittiOptions) -> None:
    """Write simulated streets in the formats of SemanticKITTI and KITTI odometry."""
    from pcnn.simulate.streets.kitti import KITTI

    write(KITTI, options)


def fragments(options: FragmentsOptions) -> None:
    """Write RGB-D fragments of simulated rooms in the formats of 3DMatch."""
    from pcnn.simulate.rooms.threedmatch import THREEDMATCH

    write(THREEDMATCH, options)


def rooms(options: RoomsOptions) -> None:
    """Write labelled, coloured rooms in the formats of S3DIS."""
    from pcnn.simulate.rooms.s3dis import S3DIS

    write(S3DIS, options)


def write(simulator: Simulator, options: SimulateOptions) -> None:
    """Write a set and print its folder."""
    what = asdict(options)
    root, workers, progress = (what.pop(name) for name in ("root", "workers", "progress"))
    with refusing():
        target = simulator.folder("data", what) if root is None else root
        say(simulator.write(target, workers=workers, progress=progress, **what))


app.add(kitti, "pcnn simulate kitti streets --scans 60 --val-scans 4 --seed 1")
app.add(fragments, "pcnn simulate fragments --scenes 40 --fragments 40 --seed 1")
app.add(rooms, "pcnn simulate rooms --rooms 40 --spacing 0.01 --seed 1")
