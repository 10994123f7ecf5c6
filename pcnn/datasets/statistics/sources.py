"""The clouds of a data set, whatever its layout: what `pcnn stats` reads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pcnn.datasets.labels import IGNORE
from pcnn.datasets.readers.channels import Reading
from pcnn.datasets.readers.clouds import read_points
from pcnn.datasets.readers.fragments import read_fragment
from pcnn.datasets.readers.label_files import without_label_files
from pcnn.datasets.readers.points import (
    SUFFIXES,
    is_cloud_file,
    is_label_file,
    label_source,
    read_labels,
)
from pcnn.datasets.readers.table import rounded_points, valid_returns
from pcnn.datasets.readers.units import declared_unit
from pcnn.datasets.s3dis.classes import CLASS_NAMES
from pcnn.datasets.s3dis.files import Room, layout_of, read_annotation
from pcnn.datasets.semantic_kitti_labels import label_map
from pcnn.files.bounded import LIMIT

FRAGMENT, ROOM = (".pth", ".npz"), ".txt"


@dataclass(frozen=True)
class CloudFile:
    """One cloud of a set: its file, or the folder of a room, and its name within the set."""

    path: Path
    name: str


@dataclass(frozen=True, eq=False)
class MeasuredCloud:
    """The part of a cloud that statistics are taken of.

    Args:
        points: [P, 3] float32 [m], finite, in the order of the file.
        remission: [P] float32; None where the file holds none.
        classes: [P] names; None where nothing is labelled.
        missing: rows of the file without a return, which are left out.
        notes: what was repaired in the files.
    """

    points: NDArray[np.float32]
    remission: NDArray[np.float32] | None = None
    classes: NDArray[np.str_] | None = None
    missing: int = 0
    notes: tuple[str, ...] = ()


def find_clouds(path: Path) -> list[CloudFile]:
    """List the clouds at a path, in order.

    * a file: that cloud;
    * a folder with ``sequences/`` (SemanticKITTI, KITTI odometry): its scans;
    * any other folder: rooms of S3DIS in both layouts (``Area_1/office_1`` with ``Annotations/`` or
      with ``coord.npy``; ``office_1/office_1.txt`` alone serves as well), and beside them every
      cloud that `pcnn.datasets.readers.points` reads and ``.pth`` (3DMatch fragment) below it.

    Raises:
        FileNotFoundError: nothing there, or no cloud.
    """
    if path.is_file():
        return [CloudFile(path, path.stem)]
    if not path.is_dir():
        raise FileNotFoundError(f"{path}: no such file or folder")
    if (path / "sequences").is_dir():
        found = sorted((path / "sequences").glob("*/velodyne/*.bin"))
    else:
        files = [f for f in path.rglob("*") if f.is_file()]
        rooms = {folder for folder in {path, *_folders_above(files, path)} if layout_of(folder)}
        clouds = [f for f in files if _is_cloud(f) and not rooms.intersection(f.parents)]
        found = sorted([*rooms, *without_label_files(sorted(clouds))])
    if not found:
        kinds = ", ".join((*SUFFIXES, FRAGMENT[0]))
        raise FileNotFoundError(f"{path}: no cloud ({kinds}, rooms of S3DIS) in this folder")
    return [CloudFile(f, path.name if f == path else str(f.relative_to(path))) for f in found]


def _folders_above(files: list[Path], root: Path) -> set[Path]:
    return {folder for file in files for folder in file.parents if root in folder.parents}


def _is_cloud(file: Path) -> bool:
    if file.suffix == ROOM:
        return file.stem == file.parent.name
    return (is_cloud_file(file) or file.suffix == FRAGMENT[0]) and not is_label_file(file)


def read_cloud(
    path: Path, columns: tuple[str, ...] | None = None, max_gib: float = LIMIT
) -> MeasuredCloud:
    """Read positions, remission and classes of a cloud, as far as its files hold them.

    Rows without a return (`pcnn.datasets.readers.table`) are left out and counted. Labels of
    SemanticKITTI (``velodyne/N.bin`` and ``labels/N.label``) become its 19 class names and
    ``unlabelled``; rooms of S3DIS have the 13 classes and the repairs of training; labels beside
    other clouds become their numbers.

    Args:
        path: the cloud.
        columns: as of `pcnn.datasets.readers.channels.Reading`.
        max_gib: likewise.

    Raises:
        MissingFileError: no such file.
        MissingPackageError: a package that the format needs is not installed.
        FileError: a file that breaks its format, NaN or infinite numbers.
    """
    if path.is_dir() or path.suffix == ROOM:
        cloud, origin = _read_room(path), np.zeros(3)
    elif path.suffix in FRAGMENT:
        cloud, origin = MeasuredCloud(read_fragment(path, max_gib).numpy()), np.zeros(3)
    else:
        cloud, origin = _read_points(path, columns, max_gib)
    valid = valid_returns(cloud.points + origin)
    if valid.all():
        return cloud
    return replace(
        cloud,
        points=cloud.points[valid],
        remission=None if cloud.remission is None else cloud.remission[valid],
        classes=None if cloud.classes is None else cloud.classes[valid],
        missing=cloud.missing + int((~valid).sum()),
    )


def _read_points(
    path: Path, columns: tuple[str, ...] | None, max_gib: float
) -> tuple[MeasuredCloud, NDArray[np.float64]]:
    """The cloud, and its origin in the coordinates of the file."""
    cloud = read_points(path, reading=Reading(centred=True, columns=columns, max_gib=max_gib))
    # remission comes first of the channels; three alone are colour, four of an array anything
    has_remission = cloud.features.shape[1] in (
        (1, 4) if columns or path.suffix != ".npy" else (1,)
    )
    total = cloud.n_points_total
    read = MeasuredCloud(
        cloud.points.numpy(),
        cloud.features[:, 0].numpy() if has_remission else None,
        missing=total - cloud.n_points,
    )
    declared = declared_unit(path)
    if declared is not None:
        read = replace(read, notes=(f"{path}: {declared}, not in metres",))
    rows = np.arange(total) if cloud.point_index is None else cloud.point_index.numpy()
    official = path.parent.parent / "labels" / f"{path.stem}.label"
    beside = label_source(path)
    if path.suffix == ".bin" and path.parent.name == "velodyne" and official.is_file():
        names = label_map("official")
        train = names.encode(read_labels(official, total)[rows], str(official))
        classes = _named(train, names.class_names)
    elif beside is None:
        classes = None
    elif beside == path:
        assert cloud.labels is not None
        classes = cloud.labels.numpy().astype(str)
    else:
        classes = read_labels(beside, total)[rows].astype(str)
    return replace(read, classes=classes), np.array(cloud.origin)


def _read_room(path: Path) -> MeasuredCloud:
    folder = path if path.is_dir() else path.parent
    layout = layout_of(folder)
    if layout is None:
        values, notes = read_annotation(path)
        return MeasuredCloud(rounded_points(values[:, :3], path), notes=tuple(notes))
    room, notes = Room(f"{folder.parent.name}/{folder.name}", folder, layout).read()
    return MeasuredCloud(room.coord, classes=_named(room.segment, CLASS_NAMES), notes=tuple(notes))


def _named(labels: NDArray[np.integer], names: tuple[str, ...]) -> NDArray[np.str_]:
    """Names [P] of train ids; ``unlabelled`` for those that are no class, such as -1."""
    table = np.full(IGNORE + 1, "unlabelled", "U32")
    table[: len(names)] = names
    return table[labels]
