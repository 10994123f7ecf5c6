"""`pcnn predict`: classes for the points of a file or a folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pcnn.cli.app import refusing
from pcnn.cli.options import (
    AllowTargets,
    Columns,
    Device,
    Fill,
    IntensityMax,
    MaxGib,
    Scale,
    Strict,
    chosen_device,
    chosen_reading,
    packages,
)
from pcnn.plural import counted
from pcnn.ranges import Distance, Length

if TYPE_CHECKING:
    from pcnn.console import Console
    from pcnn.experiment.predictor import Predictor


def predict(
    checkpoint: Annotated[Path, typer.Argument(help="Checkpoint of a segmentation run.")],
    paths: Annotated[
        list[Path], typer.Argument(help="Clouds (.las, .laz, .ply, .pcd, .npy, .bin), or folders.")
    ],
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("predictions"),
    crop: Annotated[
        Length | None, typer.Option(help="Leave points beyond this distance unlabelled, in metres.")
    ] = None,
    tile: Annotated[
        Length | None,
        typer.Option(help="Classify large clouds in squares of this edge, in metres."),
    ] = None,
    margin: Annotated[
        Distance, typer.Option(help="Width that the network sees around a square, in metres.")
    ] = 5.0,
    device: Device = "auto",
    ply: Annotated[bool, typer.Option(help="Write a coloured .ply beside the labels.")] = True,
    columns: Columns = None,
    fill: Fill = None,
    intensity_max: IntensityMax = None,
    scale: Scale = 1.0,
    strict: Strict = False,
    max_gib: MaxGib = None,
    allow_targets: AllowTargets = None,
) -> None:
    """Label every point of clouds and write labels and a coloured .ply for each.

    Labels are written in the format of the cloud: .las and .laz whole, with classification, .ply
    whole, with a property label; for others official .label files when the network was trained on
    SemanticKITTI, else files called NAME_label.npy. They are the labels that the classes have in
    the data the network was trained on. The coloured cloud is NAME.ply, or NAME_classes.ply beside
    a labelled .ply.

    Channels are found by the names that the network was trained with, in any case; --fill gives a
    number for one that a cloud lacks. Missing returns (NaN, or zeros) are written as unlabelled.

    A file that cannot be read is named, the others are labelled, and the exit code is 1.
    """
    from dataclasses import replace

    from pcnn.console import Console
    from pcnn.experiment.predictor import Predictor

    console = Console()
    if tile is not None and crop is not None:
        raise typer.BadParameter("--tile and --crop cannot be used together")
    if tile is not None and margin > tile:
        raise typer.BadParameter(f"--margin {margin:g}: must not exceed --tile {tile:g}")
    where = chosen_device(device)
    with refusing():
        predictor = Predictor.load(checkpoint, where, packages(allow_targets))
        targets, missing = plan_targets(paths, out)
    reading = chosen_reading(
        predictor.reading, columns, fill, strict, intensity_max, scale, max_gib
    )
    predictor = replace(predictor, reading=reading)
    if predictor.source == "simulated":
        console.print("this network was trained on simulated data")
    if predictor.trained_crop is not None and crop is None:
        console.print(
            f"this network was trained within {predictor.trained_crop} m of the sensor; "
            f"--crop {predictor.trained_crop} leaves points beyond that unlabelled"
        )
    bad = missing + label_all(predictor, targets, crop, tile, margin, ply, console)
    console.print(f"{counted(len(targets) + len(missing) - len(bad), 'cloud')} labelled in {out}")
    for line in bad:
        console.say(line, "not labelled", "red")
    if bad:
        raise typer.Exit(1)


def plan_targets(paths: list[Path], out: Path) -> tuple[dict[Path, Path], list[str]]:
    """Result of every cloud, without suffix, and what is missing among the paths.

    A folder's clouds keep their places below it; label files and earlier results are no clouds.

    Raises:
        ValueError: two clouds would write the same result, or results would lie among the clouds.
    """
    from pcnn.datasets.readers.label_files import without_label_files
    from pcnn.datasets.readers.points import SUFFIXES, is_cloud_file

    targets: dict[Path, Path] = {}
    missing: list[str] = []
    owners: dict[Path, Path] = {}
    results = out.resolve()
    for path in paths:
        clouds = [path]
        if path.is_dir():
            clouds = without_label_files(c for c in sorted(path.rglob("*")) if is_cloud_file(c))
            if path.resolve() in results.parents:  # results of a run before
                clouds = [c for c in clouds if results not in c.resolve().parents]
            if not clouds:
                missing.append(f"{path}: no cloud ({', '.join(SUFFIXES)}) in this folder")
        elif not path.exists():
            missing.append(f"{path}: no such file or folder")
            continue
        for cloud in clouds:
            place = cloud.relative_to(path) if path.is_dir() else Path(cloud.name)
            target = out / place.with_suffix("")
            if owners.setdefault(target, cloud) != cloud:
                raise ValueError(
                    f"{owners[target]} and {cloud} would both be written to {target}; "
                    "label them in two runs with different --out"
                )
            targets[cloud] = target
    among = {cloud.parent.resolve() for cloud in targets}
    for cloud, target in targets.items():
        if target.parent.resolve() in among:
            raise ValueError(
                f"the result of {cloud} would lie among the clouds in {target.parent} and might "
                "replace one; give another folder as --out"
            )
    return targets, missing


def label_all(
    predictor: Predictor,
    targets: dict[Path, Path],
    crop: float | None,
    tile: float | None,
    margin: float,
    ply: bool,
    console: Console,
) -> list[str]:
    """Label the clouds one after the other; returns why some could not be."""
    from rich.progress import track

    from pcnn.datasets.prediction_files import write_labelled
    from pcnn.datasets.readers.points import read_points
    from pcnn.errors import UNREADABLE
    from pcnn.visualize import write_coloured_ply

    bad: list[str] = []
    doubted, scale = False, predictor.reading.scale
    rows = lost = 0
    for path, target in track(targets.items(), "labelling", console=console, transient=True):
        try:
            cloud = read_points(path, reading=predictor.reading)
            if not doubted:  # one cloud tells of all
                doubts = predictor.doubts(cloud)
                doubted = bool(doubts)
                for doubt in doubts:
                    console.say(f"{path}: {doubt}", "note", "yellow")
            if tile is None:
                classes = predictor(cloud, crop)
            else:
                classes = predictor.in_tiles(cloud, tile, margin)
            labels = predictor.labels(cloud, classes)
            written = write_labelled(target, path, labels, predictor.as_words)
            if ply:
                own = "_classes" if written.suffix == ".ply" else ""
                write_coloured_ply(
                    target.with_name(f"{target.name}{own}.ply"),
                    cloud.points.numpy() / scale,
                    predictor.rgb(classes),
                    classes.numpy(),
                    origin=[place / scale for place in cloud.origin],
                )
            rows += cloud.n_points_total
            lost += cloud.n_points_total - cloud.n_points
        except (*UNREADABLE, OSError) as error:  # OSError: the result cannot be written
            bad.append(str(error) if str(path) in str(error) else f"{path}: {error}")
    if lost:
        console.say(
            f"{lost:,} of {counted(rows, 'point')} are missing returns (NaN, or zeros) and written "
            "as unlabelled; --strict refuses such clouds"
        )
    return bad
