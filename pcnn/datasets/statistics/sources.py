"""The clouds of a data set, whatever its layout: what `pcnn stats` reads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pcnn.datasets.channels import Reading
from pcnn.datasets.label_places import without_label_files
from pcnn.datasets.labels import IGNORE, label_map
from pcnn.datasets.point_files import (
    SUFFIXES,
    is_cloud_file,
    is_label_file,
    label_source,
    read_labels,
    read_points,
)

FRAGMENT, ROOM = ".pth", ".txt"


@dataclass(frozen=True)
class CloudFile:
    """One cloud of a set: its file, and its name within the set."""

    path: Path
    name: str


def find_clouds(path: Path) -> list[CloudFile]:
    """List the clouds at a path, in order.

    * a file: that cloud;
    * a folder with ``sequences/`` (SemanticKITTI, KITTI odometry): its scans;
    * any other folder: every ``.bin``, ``.npy``, ``.ply`` and ``.pth`` (3DMatch fragment) below
      it, and the rooms of S3DIS (``Area_1/office_1/office_1.txt``).

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
        clouds = [f for f in path.rglob("*") if is_cloud_file(f) or f.suffix == FRAGMENT]
        rooms = [f for f in path.rglob(f"*{ROOM}") if f.stem == f.parent.name]
        found = sorted(f for f in clouds + rooms if f.is_file() and not is_label_file(f))
        found = without_label_files(found)
    if not found:
        kinds = ", ".join((*SUFFIXES, FRAGMENT))
        raise FileNotFoundError(f"{path}: no cloud ({kinds}, rooms of S3DIS) in this folder")
    return [CloudFile(file, str(file.relative_to(path))) for file in found]


def read_cloud(
    path: Path,
) -> tuple[NDArray[np.float32], NDArray[np.float32] | None, NDArray[np.str_] | None]:
    """Read positions, remission and classes of a cloud, as far as its files hold them.

    Labels of SemanticKITTI (``velodyne/N.bin`` and ``labels/N.label``) become its 19 class names
    and ``unlabelled``; rooms of S3DIS are read from their ``Annotations``, if there are any, with
    the classes that these are named for; labels beside other clouds become their numbers.

    Returns:
        [P, 3] float32 [m], [P] float32 or None, [P] names or None.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a file that breaks its format, NaN or infinite numbers.
    """
    if path.suffix == FRAGMENT:
        return _read_fragment(path), None, None
    if path.suffix == ROOM:
        points, elements = _read_room(path)
        return points, None, elements
    cloud = read_points(path, reading=Reading(centred=True))
    points = cloud.points.numpy()
    # remission comes first of the channels; three alone are colour
    has_remission = cloud.features.shape[1] in (1, 4)
    remission = cloud.features[:, 0].numpy() if has_remission else None
    official = path.parent.parent / "labels" / f"{path.stem}.label"
    if path.suffix == ".bin" and path.parent.name == "velodyne" and official.is_file():
        names = label_map("official")
        train = names.encode(read_labels(official, len(points)), str(official))
        table = np.full(IGNORE + 1, "unlabelled", "U32")
        table[: len(names.class_names)] = names.class_names
        return points, remission, table[train]
    beside = label_source(path)
    if beside is None:
        return points, remission, None
    if beside == path:
        assert cloud.labels is not None
        return points, remission, cloud.labels.numpy().astype(str)
    return points, remission, read_labels(beside, len(points)).astype(str)


def _read_fragment(path: Path) -> NDArray[np.float32]:
    # published fragments are pickled NumPy arrays: only what rebuilds an array is let in
    rebuild: list[Any] = [np.empty(0).__reduce__()[0], np.ndarray, np.dtype]
    rebuild += [type(np.dtype(kind)) for kind in (np.float32, np.float64)]
    try:
        with torch.serialization.safe_globals(rebuild):
            content = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, UnpicklingError, EOFError, ValueError, KeyError, IndexError) as error:
        raise ValueError(
            f"{path}: not a fragment, an array [N, 3] written by torch.save ({error})"
        ) from error
    return _positions(path, np.asarray(content))


def _read_room(path: Path) -> tuple[NDArray[np.float32], NDArray[np.str_] | None]:
    parts = sorted((path.parent / "Annotations").glob(f"*{ROOM}"))
    if not parts:
        return _read_lines(path), None
    points = [_read_lines(part) for part in parts]
    # chair_3.txt holds the third chair
    names = [part.stem.rsplit("_", 1)[0] for part in parts]
    return np.concatenate(points), np.repeat(names, [len(p) for p in points])


def _read_lines(path: Path) -> NDArray[np.float32]:
    try:
        values = np.loadtxt(path, dtype=np.float64, ndmin=2)
    except (ValueError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not lines of numbers x y z r g b ({error})") from error
    return _positions(path, values)


def _positions(path: Path, values: NDArray[np.generic]) -> NDArray[np.float32]:
    if values.ndim != 2 or values.shape[1] < 3 or values.dtype.kind not in "fiu":
        raise ValueError(
            f"{path}: points must be numbers [N, 3 or more], found {values.dtype} "
            f"{list(values.shape)}"
        )
    points = values[:, :3].astype(np.float32)
    if not np.isfinite(points).all():
        raise ValueError(f"{path}: holds NaN or infinite numbers")
    return points
