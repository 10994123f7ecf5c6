"""`pcnn simulate fragments` and `pcnn simulate rooms`: interiors in official formats."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from pcnn.cli.simulated_set import write_set
from pcnn.ranges import Clouds, Fragments, Processes, Rooms, Seed, Spacing

Root = Annotated[
    Path | None,
    typer.Argument(help="Folder to write; default data/simulated/<format>-<seed>-<version>."),
]
RoomSeed = Annotated[Seed, typer.Option(help="Seed of rooms, paths and noise.")]
Workers = Annotated[Processes | None, typer.Option(help="Processes; default: every core.")]
ShowProgress = Annotated[bool, typer.Option(help="Show progress.")]


class FusionChoice(str, Enum):
    """Ways of fusing 50 frames."""

    samples = "samples"
    means = "means"
    tsdf = "tsdf"


class LayoutChoice(str, Enum):
    """Layouts of labelled rooms."""

    text = "text"
    arrays = "arrays"


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
    progress: ShowProgress = True,
) -> None:
    """Write RGB-D fragments of simulated rooms in the formats of 3DMatch."""
    from pcnn.simulate.interiors import VERSION, simulate_fragments

    write_set(
        simulate_fragments,
        root,
        "threedmatch",
        seed,
        VERSION,
        train_scenes=scenes,
        val_scenes=val_scenes,
        test_scenes=test_scenes,
        fragments=fragments,
        fusion=fusion.value,
        workers=workers,
        progress=progress,
    )


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
    progress: ShowProgress = True,
) -> None:
    """Write labelled, coloured rooms in the formats of S3DIS."""
    from pcnn.simulate.interiors import VERSION, simulate_rooms

    write_set(
        simulate_rooms,
        root,
        "s3dis",
        seed,
        VERSION,
        rooms=rooms,
        spacing=spacing,
        layout=layout.value,
        workers=workers,
        progress=progress,
    )
