"""`pcnn preprocess`: prepare data sets for training ahead of time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pcnn import ranges
from pcnn.cli.app import App, refusing
from pcnn.cli.options import filled
from pcnn.plural import counted
from pcnn.ranges import Count, Distance, Label, Length, PartialShare, Positive, Workers

if TYPE_CHECKING:
    from pcnn.datasets import CloudSets
    from pcnn.datasets.cloud_dataset import CloudDataset
    from pcnn.datasets.preparation import Outcome, Preparation

app = App()

DataDir = Annotated[
    Path, typer.Option(help="Where trainings keep caches: dataset.data_dir of the training.")
]
Geometry = Annotated[str, typer.Option(help="geometry of the training: voxel or point.")]
Missing = Annotated[
    bool, typer.Option("--allow-missing", help="dataset.allow_missing: use what is there.")
]
Processes = Annotated[
    Workers | None, typer.Option(help="Processes; default: every core; 0: this one alone.")
]
Shards = Annotated[
    Path | None,
    typer.Option(
        help="Write the training clouds into shards here: dataset.shards of the training."
    ),
]
Progress = Annotated[bool, typer.Option(help="Show progress.")]


@app.callback()
def preprocess() -> None:
    """Fill the caches of a training ahead of time, and find broken files before it does.

    Give the same settings as to train.py. A run may be stopped at any time: files are written whole
    or not at all, and the next run keeps those that are there. Files that cannot be read, and
    clouds without points, are named at the end, the others are done, and the exit code is 1.
    """


@app.command("kitti")
def kitti(
    root: Annotated[Path, typer.Argument(help="Folder that holds sequences/.")],
    data_dir: DataDir = Path("data"),
    voxel_size: Annotated[Length, typer.Option(help="dataset.voxel_size, in metres.")] = 0.1,
    crop: Annotated[Distance, typer.Option(help="dataset.crop, in metres; 0: no crop.")] = 25.0,
    labels: Annotated[str, typer.Option(help="dataset.labels.")] = "official",
    sequence: Annotated[
        list[ranges.Sequence] | None,
        typer.Option(help="dataset.train_sequences; may be repeated. Default: official."),
    ] = None,
    val_sequence: Annotated[
        list[ranges.Sequence] | None,
        typer.Option(help="dataset.val_sequences; may be repeated; default 8."),
    ] = None,
    allow_missing: Missing = False,
    geometry: Geometry = "voxel",
    check: Annotated[bool, typer.Option(help="Read the validation scans too.")] = True,
    shards: Shards = None,
    workers: Processes = None,
    progress: Progress = True,
) -> None:
    """SemanticKITTI: crop and voxelise the training scans, read the validation scans."""
    from pcnn.datasets.semantic_kitti import TRAIN_SEQUENCES, VAL_SEQUENCES, SemanticKITTISets

    def sets() -> SemanticKITTISets:
        return SemanticKITTISets(
            str(root),
            data_dir=str(data_dir),
            train_sequences=sequence or TRAIN_SEQUENCES,
            val_sequences=val_sequence or VAL_SEQUENCES,
            labels=labels,
            allow_missing=allow_missing,
        )

    settings = {"voxel_size": voxel_size, "crop": crop or None, "data_dir": str(data_dir)}
    fill_caches(sets, settings, geometry, check, workers, progress, shards)


@app.command("s3dis")
def s3dis(
    root: Annotated[Path, typer.Argument(help="Folder that holds Area_1 and so on.")],
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the rooms as arrays; default DATA_DIR/s3dis."),
    ] = None,
    data_dir: DataDir = Path("data"),
    area: Annotated[
        list[ranges.Sequence] | None,
        typer.Option(help="Areas; may be repeated. Default: all there are."),
    ] = None,
    test_area: Annotated[
        list[ranges.Sequence] | None,
        typer.Option(help="dataset.test_areas; may be repeated. Default: 5."),
    ] = None,
    align: Annotated[bool, typer.Option(help="Turn rooms so that walls follow the axes.")] = False,
    cache: Annotated[bool, typer.Option(help="Fill the cache of a training too.")] = True,
    voxel_size: Annotated[Length, typer.Option(help="dataset.voxel_size, in metres.")] = 0.05,
    geometry: Geometry = "voxel",
    shards: Shards = None,
    workers: Processes = None,
    progress: Progress = True,
) -> None:
    """S3DIS: write the rooms as arrays, then voxelise those that train.

    Rooms whose folder holds arrays already are not converted. Train with dataset.root=OUT.
    """
    from pcnn.datasets.s3dis import TEST_AREAS, S3DISSets, find_rooms
    from pcnn.datasets.s3dis.convert import ConvertRooms, keep_alignment, keep_marker

    target = data_dir / "s3dis" if out is None else out
    with refusing():
        rooms = find_rooms(root, area)
    if target.resolve() == root.resolve():
        raise typer.BadParameter(
            f"--out {target}: this is the folder of the raw rooms; give another"
        )
    work = ConvertRooms(tuple(rooms), target, align)
    with refusing():
        keep_alignment(work)
    keep_marker(root, target)
    good = do_all([work], "room", workers, progress)
    if cache:
        there = sorted({room.area for room in find_rooms(target)})
        tested = tuple(test_area or TEST_AREAS)

        def sets() -> S3DISSets:
            areas = [area for area in there if area not in tested]
            return S3DISSets(str(target), test_areas=tested, val_areas=(), train_areas=areas)

        settings = {"voxel_size": voxel_size, "data_dir": str(data_dir)}
        fill_caches(sets, settings, geometry, False, workers, progress, shards)
    if not good:
        raise typer.Exit(1)


@app.command("folder")
def folder(
    root: Annotated[Path, typer.Argument(help="Folder of labelled clouds.")],
    classes: Annotated[
        Path | None, typer.Option(help="dataset.classes: YAML file of the classes.")
    ] = None,
    class_name: Annotated[
        list[str] | None,
        typer.Option(help="dataset.class_names, instead of --classes; may be repeated."),
    ] = None,
    ignore_label: Annotated[Label | None, typer.Option(help="dataset.ignore_label.")] = None,
    channel: Annotated[
        list[str] | None, typer.Option(help="dataset.channels; may be repeated.")
    ] = None,
    intensity_max: Annotated[Positive | None, typer.Option(help="dataset.intensity_max.")] = None,
    columns: Annotated[str | None, typer.Option(help="dataset.columns, with commas.")] = None,
    fill: Annotated[
        list[str] | None, typer.Option(help="dataset.fill, as in intensity=0; repeat.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="dataset.strict=true.")] = False,
    max_gib: Annotated[Positive, typer.Option(help="dataset.max_gib.")] = 8.0,
    data_dir: DataDir = Path("data"),
    voxel_size: Annotated[Length, typer.Option(help="dataset.voxel_size, in metres.")] = 0.1,
    crop: Annotated[Distance, typer.Option(help="dataset.crop, in metres; 0: no crop.")] = 0.0,
    val_fraction: Annotated[PartialShare, typer.Option(help="dataset.val_fraction.")] = 0.2,
    test_fraction: Annotated[PartialShare, typer.Option(help="dataset.test_fraction.")] = 0.0,
    geometry: Geometry = "voxel",
    check: Annotated[bool, typer.Option(help="Read the validation clouds too.")] = True,
    shards: Shards = None,
    workers: Processes = None,
    progress: Progress = True,
) -> None:
    """Own clouds: read, crop and voxelise those that train, read those that validate.

    Train with dataset.cache=true.
    """
    from pcnn.datasets import FolderSets

    def sets() -> FolderSets:
        return FolderSets(
            str(root),
            classes=None if classes is None else str(classes),
            class_names=class_name or None,
            ignore_label=ignore_label,
            channels=channel or None,
            intensity_max=intensity_max,
            columns=columns,
            fill=filled(fill),
            strict=strict,
            max_gib=max_gib,
            val_fraction=val_fraction,
            test_fraction=test_fraction,
        )

    settings = {"voxel_size": voxel_size, "crop": crop or None, "data_dir": str(data_dir)}
    fill_caches(sets, settings, geometry, check, workers, progress, shards)


@app.command("tiles")
def tiles(
    root: Annotated[Path, typer.Argument(help="Folder of large .las and .laz clouds.")],
    out: Annotated[Path, typer.Argument(help="Folder for the tiles.")],
    size: Annotated[Length, typer.Option(help="Edge of a tile, in metres.")] = 50.0,
    least: Annotated[Count, typer.Option(help="Leave out tiles with fewer points.")] = 100,
    workers: Processes = None,
    progress: Progress = True,
) -> None:
    """Cut large LAS clouds into square tiles, to train on with dataset=folder dataset.root=OUT.

    Classify new clouds in the same squares: pcnn predict --tile SIZE.
    """
    from pcnn.datasets.readers import las
    from pcnn.datasets.tiles import CutTiles

    if not root.is_dir():
        raise typer.BadParameter(f"{root} is not a folder")
    if out.resolve() == root.resolve() or root.resolve() in out.resolve().parents:
        raise typer.BadParameter(f"{out} lies among the clouds; give another folder")
    clouds = sorted(path for path in root.rglob("*") if path.suffix.lower() in las.SUFFIXES)
    if not clouds:
        raise typer.BadParameter(f"no cloud ({', '.join(las.SUFFIXES)}) in {root}")
    work = CutTiles(root, tuple(clouds), out, size, least)
    if not do_all([work], "cloud", workers, progress):
        raise typer.Exit(1)


#: A shard is closed when it is larger [bytes].
SHARD_BYTES = 512 << 20

#: Words for a state, in the order of the report.
WORDS = {
    "made": "made",
    "kept": "already there",
    "checked": "read without problems",
    "failed": "not done",
}


def fill_caches(
    sets: Callable[[], CloudSets],
    settings: Mapping[str, Any],
    geometry: str,
    check: bool,
    workers: int | None,
    progress: bool,
    shards: Path | None = None,
) -> None:
    """Fill the cache that a training with these settings uses.

    Args:
        sets: makes the data set and its splits.
        settings: further arguments of the data module.
        geometry: ``voxel`` or ``point``.
        check: read the clouds of validation too.
        workers: processes; None takes every core.
        progress: show progress.
        shards: folder that gets shards of the training clouds too.

    Raises:
        typer.BadParameter: settings or a set that no training would take.
        typer.Exit: something could not be done, and was named.
    """
    from pcnn.datamodules import CloudDataModule
    from pcnn.datasets import OnPoints, OnVoxels
    from pcnn.datasets.cloud_dataset import CloudDataset
    from pcnn.datasets.preparation import FillCache, ReadAll

    if geometry not in ("voxel", "point"):
        raise typer.BadParameter(f"--geometry {geometry}: must be voxel or point")
    placement = OnVoxels() if geometry == "voxel" else OnPoints()
    with refusing():
        data = CloudDataModule(sets(), cache=True, geometry=placement, **settings)
        data.prepare_data()
        train = data.build("train")
        val = data.build("val") if check else None
    work: list[Preparation] = [FillCache(train)] if isinstance(train, CloudDataset) else []
    work += [ReadAll(val)] if isinstance(val, CloudDataset) else []
    if not do_all(work, "cloud", workers, progress):
        raise typer.Exit(1)
    if shards is not None and isinstance(train, CloudDataset):
        fill_shards(train, shards, progress)


def fill_shards(train: CloudDataset, folder: Path, progress: bool) -> None:
    """Write the training clouds of a set, which lie in its cache, into shards.

    Raises:
        typer.BadParameter: the folder holds shards, or cannot be written.
    """
    from rich.progress import track

    from pcnn.console import Console
    from pcnn.datasets.shards import write_shards

    console = Console()
    with refusing():
        written = write_shards(train, folder, SHARD_BYTES)
        for _ in track(written, "shards", len(train), console=console, disable=not progress):
            pass
    files = len(list(folder.glob("*.tar")))
    console.say(
        f"{counted(len(train), 'cloud')} in {counted(files, 'shard')}: dataset.shards={folder}"
    )


def do_all(work: Sequence[Preparation], unit: str, workers: int | None, progress: bool) -> bool:
    """Do all work, then say what was done and name what could not be.

    Returns:
        True if all files could be prepared.

    Raises:
        typer.Exit: the disk is full, or a process died.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    from pcnn.console import Console
    from pcnn.datasets.preparation import prepared

    console = Console()
    outcomes: list[Outcome] = []
    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    results = iter(prepared(work, workers))
    stopped = ""
    total = sum(map(len, work))
    with Progress(*columns, console=console, disable=not progress) as bar:
        task = bar.add_task(f"{unit}s", total=total)
        try:
            for outcome in results:
                outcomes.append(outcome)
                bar.advance(task)
        except (OSError, RuntimeError) as error:
            stopped = str(error).splitlines()[-1]
    counts = Counter(str(outcome.state) for outcome in outcomes)
    said = [f"{counts[state]} {words}" for state, words in WORDS.items() if counts[state]]
    console.print(f"{counted(total, unit)}: {', '.join(said) or 'nothing done'}", highlight=False)
    for outcome in outcomes:
        for note in outcome.notes:
            console.say(note, "note", "yellow")
    failed = [outcome.problem for outcome in outcomes if outcome.state == "failed"]
    for problem in failed:
        console.say(problem, "not done", "red")
    if stopped:
        console.say(
            f"{stopped}\nwhat was done is kept; the same command continues "
            "with the rest (for less memory: --workers with a smaller number)",
            "stopped",
            "red",
        )
        raise typer.Exit(1)
    return not failed
