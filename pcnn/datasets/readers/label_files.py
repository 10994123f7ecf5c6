"""Files of labels: where those of a cloud may lie, and SemanticKITTI's ``.label`` words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np

from pcnn.errors import FileError
from pcnn.files.bounded import named
from pcnn.files.rows import HeldRows, Rows, ranges
from pcnn.files.whole_file import whole_file

#: Names of folders that hold labels, beside a folder of clouds.
FOLDERS = ("labels", "label")

# beside the cloud, beside its folder, beside the folder above that
_LEVELS = 3


def label_files(path: Path) -> list[Path]:
    """Return the files that label a cloud; more than one is a mistake of the set.

    * beside it: ``NAME.label``, ``NAME_label.npy``;
    * in a folder ``labels`` (``label``) that takes the place of a folder of the clouds, or lies
      beside the cloud: ``velodyne/NAME.bin`` with ``labels/NAME.label``, ``points/a/NAME.ply`` with
      ``labels/a/NAME.npy``, ``NAME.bin`` with ``labels/NAME.label``. There ``NAME.npy`` is a name
      of labels, too.

    Args:
        path: the cloud.
    """
    return [place for place in _places(path) if place != path and place.is_file()]


def without_label_files(paths: Iterable[Path]) -> list[Path]:
    """Return the paths without those that label another of them (``labels/NAME.npy``)."""
    paths = list(paths)
    # clouds and labels share no other suffix
    if not any(path.suffix == ".npy" and _in_label_folder(path) for path in paths):
        return paths
    labels = {place for path in paths for place in _places(path) if place != path}
    return [path for path in paths if path not in labels]


def _places(path: Path) -> Iterator[Path]:
    yield path.with_suffix(".label")
    yield path.with_name(f"{path.stem}_label.npy")
    for depth in range(_LEVELS):
        # the cloud's path, cut in front of its last `depth` folders: what is above, and below
        if depth >= len(path.parts) - 1:
            return
        above = path.parents[depth]
        below = path.relative_to(above).parts[1:] if depth else (path.name,)
        for name in FOLDERS:
            place = above.joinpath(name, *below)
            yield place.with_suffix(".label")
            yield place.with_name(f"{path.stem}_label.npy")
            yield place.with_suffix(".npy")


def _in_label_folder(path: Path) -> bool:
    return any(part in FOLDERS for part in path.parts[:-1])


def read_label_file(path: Path, n_points: int) -> np.ndarray:
    """Read the words of a label file.

    Args:
        path: little-endian uint32, one word a point.
        n_points: number of points of the scan the labels belong to.

    Returns:
        [P] uint32; the class is ``word & 0xFFFF``, the instance ``word >> 16``.

    Raises:
        MissingFileError: no such file.
        FileError: a size that is no multiple of 4, or another count than the scan's.
    """
    with named(path, ".label file"):
        size = path.stat().st_size
        if size % 4:
            raise FileError(path, f"{size} bytes are no whole number of 4-byte labels; truncated?")
        if size // 4 != n_points:
            raise FileError(path, f"{size // 4} labels for a scan of {n_points} points")
        return np.fromfile(path, dtype="<u4")


def write_label_file(path: Path, raw: np.ndarray) -> None:
    """Write class ids as an official prediction file, whole or not at all.

    Args:
        path: the file, in the official layout ``sequences/XX/predictions/NNNNNN.label``.
        raw: [P] raw ids in 0..65535, for every point of the scan, in its order.

    Raises:
        ValueError: ids out of range.
    """
    raw = np.asarray(raw)
    if raw.size and (raw.min() < 0 or raw.max() > 0xFFFF):
        raise ValueError(f"{path}: class ids must fit 16 bits, got {raw.min()}..{raw.max()}")
    with whole_file(path) as file:
        for part in ranges(HeldRows(raw)):
            file.write(part.astype("<u4").tobytes())


def completed_ranges(
    rows: Rows, dtype: np.dtype, added: Mapping[str, Rows]
) -> Iterator[np.ndarray]:
    """Records with further fields, range by range.

    Args:
        rows: [P] structured records.
        dtype: of the results: fields of the records, and those that are added.
        added: [P] values of a field, by its name.
    """
    at = 0
    for part in ranges(rows):
        found = np.empty(len(part), dtype)
        for name in dtype.names or ():
            found[name] = added[name].read(at, len(part)) if name in added else part[name]
        at += len(part)
        yield found


def confidence_file(path: Path) -> Path:
    """The file ``NAME_confidence.npy`` beside a cloud, or beside its file of labels."""
    return path.with_name(f"{path.stem.removesuffix('_label')}_confidence.npy")
