"""`pcnn simulate`: write simulated data sets in official formats."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from pcnn.cli.app import App, refusing
from pcnn.escaping import say
from pcnn.ranges import Clouds, Count, Fragments, Processes, Rooms, Seed, Spacing
from pcnn.simulate.simulator import Simulator

app = App(help="Write simulated data sets in official formats.")

Root = Annotated[
    Path | None,
    typer.Argument(help="Folder to write; default data/simulated/<format>-<seed>-<version>."),
]
Workers = Annotated[Processes | None, typer.Option(help="Processes; default: every core.")]
Progress = Annotated[bool, typer.Option(help="Show progress.")]
RoomSeed = Annotated[Seed, typer.Option(help="Seed of rooms, paths and noise.")]


class FusionChoice(str, Enum):
    """Ways of fusing 50 frames."""

    samples = "samples"
    means = "means"
    tsdf = "tsdf"


class LayoutChoice(str, Enum):
    """Layouts of labelled rooms."""

    text = "text"
    arrays = "arrays"


class SensorChoice(str, Enum):
    """LiDARs that drive through simulated streets."""

    hdl64 = "hdl64"
    any = "any"


@app.callback()
def simulate() -> None:
    """Write simulated data sets in official formats; every folder is marked as simulated."""


def _write(
    simulator: Simulator, root: Path | None, workers: Any, progress: bool, **what: Any
) -> None:
    """Write a set and print its folder; refusals of the simulator become `typer.BadParameter`."""
    target = simulator.folder("data", what) if root is None else root
    with refusing():
        written = simulator.write(target, workers=workers, progress=progress, **what)
    say(written)


@app.command("kitti")
def simulate_kitti_command(
    root: Root = None,
    folder: Annotated[
        Path | None, typer.Option("--root", help="The same as ROOT, as an option.")
    ] = None,
    scans: Annotated[Clouds, typer.Option(help="Training scans, sequences 00-07, 09, 10.")] = 40,
    val_scans: Annotated[Clouds, typer.Option(help="Validation scans, sequence 08.")] = 8,
    seed: Annotated[Seed, typer.Option(help="Seed of streets, traffic and noise.")] = 0,
    workers: Workers = None,
    frame_stride: Annotated[
        Count,
        typer.Option(help="Frames (10 Hz) from one scan to the next; 1 takes every frame."),
    ] = 15,
    sensors: Annotated[
        SensorChoice,
        typer.Option(help="That of KITTI, or one of 16 to 128 beams at any height a sequence."),
    ] = SensorChoice.hdl64,
    progress: Progress = True,
) -> None:
    """Write simulated streets in the formats of SemanticKITTI and KITTI odometry."""
    from pcnn.simulate.streets.kitti import KITTI

    if root is not None and folder is not None:
        raise typer.BadParameter(f"give one folder, not {root} and --root {folder}")
    _write(
        KITTI,
        folder if root is None else root,
        workers,
        progress,
        seed=seed,
        train_scans=scans,
        val_scans=val_scans,
        frame_stride=frame_stride,
        sensors=sensors.value,
    )


@app.command("fragments")
def simulate_fragments_command(
    root: Root = None,
    scenes: Annotated[Clouds, typer.Option(help="Rooms for training.")] = 8,
    val_scenes: Annotated[Clouds, typer.Option(help="Rooms for validation.")] = 2,
    test_scenes: Annotated[
        Clouds, typer.Option(help="Rooms for testing, with the benchmark's lists of pairs.")
    ] = 2,
    fragments: Annotated[Fragments, typer.Option(help="Fragments per room.")] = 16,
    fusion: Annotated[
        FusionChoice,
        typer.Option(
            help="One sample per voxel of 2.5 cm, the mean of each voxel, or Open3D's TSDF."
        ),
    ] = FusionChoice.samples,
    seed: RoomSeed = 0,
    workers: Workers = None,
    progress: Progress = True,
) -> None:
    """Write RGB-D fragments of simulated rooms in the formats of 3DMatch."""
    from pcnn.simulate.rooms.threedmatch import THREEDMATCH

    _write(
        THREEDMATCH,
        root,
        workers,
        progress,
        seed=seed,
        train_scenes=scenes,
        val_scenes=val_scenes,
        test_scenes=test_scenes,
        fragments=fragments,
        fusion=fusion.value,
    )


@app.command("rooms")
def simulate_rooms_command(
    root: Root = None,
    rooms: Annotated[Rooms, typer.Option(help="Rooms in each of the six areas.")] = 6,
    spacing: Annotated[Spacing, typer.Option(help="Distance between points, in metres.")] = 0.02,
    layout: Annotated[
        LayoutChoice,
        typer.Option(help="Text as in Stanford3dDataset_v1.2, or arrays as Pointcept's."),
    ] = LayoutChoice.text,
    seed: RoomSeed = 0,
    workers: Workers = None,
    progress: Progress = True,
) -> None:
    """Write labelled, coloured rooms in the formats of S3DIS."""
    from pcnn.simulate.rooms.s3dis import S3DIS

    _write(
        S3DIS,
        root,
        workers,
        progress,
        seed=seed,
        rooms=rooms,
        spacing=spacing,
        layout=layout.value,
    )
