"""`pcnn simulate`: write simulated data sets in official formats."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pcnn.cli.app import App
from pcnn.cli.simulate_interiors import Root, simulate_fragments_command, simulate_rooms_command
from pcnn.cli.simulated_set import write_set
from pcnn.ranges import Clouds, Count, Processes, Seed

app = App(help="Write simulated data sets in official formats.")


@app.callback()
def simulate() -> None:
    """Write simulated data sets in official formats; every folder is marked as simulated."""


@app.command("kitti")
def simulate_kitti_command(
    root: Root = None,
    folder: Annotated[
        Path | None, typer.Option("--root", help="The same as ROOT, as an option.")
    ] = None,
    scans: Annotated[Clouds, typer.Option(help="Training scans, sequences 00-07, 09, 10.")] = 40,
    val_scans: Annotated[Clouds, typer.Option(help="Validation scans, sequence 08.")] = 8,
    seed: Annotated[Seed, typer.Option(help="Seed of streets, traffic and noise.")] = 0,
    workers: Annotated[
        Processes | None, typer.Option(help="Processes; default: every core.")
    ] = None,
    frame_stride: Annotated[
        Count,
        typer.Option(help="Frames (10 Hz) from one scan to the next; 1 takes every frame."),
    ] = 15,
    progress: Annotated[bool, typer.Option(help="Show progress.")] = True,
) -> None:
    """Write simulated streets in the formats of SemanticKITTI and KITTI odometry."""
    from pcnn.simulate import VERSION, simulate_kitti

    if root is not None and folder is not None:
        raise typer.BadParameter(f"give one folder, not {root} and --root {folder}")
    write_set(
        simulate_kitti,
        folder if root is None else root,
        "kitti",
        seed,
        VERSION,
        train_scans=scans,
        val_scans=val_scans,
        workers=workers,
        progress=progress,
        frame_stride=frame_stride,
    )


app.command("fragments")(simulate_fragments_command)
app.command("rooms")(simulate_rooms_command)
