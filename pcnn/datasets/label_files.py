"""Labels of clouds in files, true and predicted: where they may lie, and how they are written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from pcnn.datasets.readers import las
from pcnn.datasets.readers.clouds import SUFFIXES, has_own_labels, read_columns
from pcnn.datasets.readers.columns import PART
from pcnn.datasets.readers.formats import TEXTS
from pcnn.errors import FileError
from pcnn.files.bounded import named, read_npy
from pcnn.files.whole_file import whole_file, write_ply

#: Names of folders that hold labels, beside a folder of clouds, and how far above they may lie.
FOLDERS, _LEVELS = ("labels", "label"), 3


def label_files(path: Path) -> list[Path]:
    """Return the files that label a cloud; more than one is a mistake of the set.

    They are ``NAME.label`` or ``NAME_label.npy`` beside it, or, also as ``NAME.npy``, in a folder
    ``labels`` (``label``) that takes the place of a folder of the clouds, or lies beside the cloud:
    ``velodyne/NAME.bin`` and ``labels/NAME.label``, ``points/a/NAME.ply`` and ``labels/a/NAME.npy``
    """
    return [place for place in _places(path) if place != path and place.is_file()]


def label_source(path: Path, columns: Sequence[str] | None = None) -> Path | None:
    """The file that labels a cloud, which may be the cloud itself; None if there is none."""
    files = label_files(path)
    if len(files) > 1:
        raise FileError(path, f"both {files[0]} and {files[1]} label it; keep one")
    if files:
        return files[0]
    return path if has_own_labels(path, columns) else None


def without_label_files(paths: Iterable[Path]) -> list[Path]:
    """Return the paths without those that label another of them (``labels/NAME.npy``)."""
    paths = list(paths)
    # clouds and labels share no other suffix
    if not any(path.suffix == ".npy" and {*FOLDERS} & {*path.parts[:-1]} for path in paths):
        return paths
    labels = {place for path in paths for place in _places(path) if place != path}
    return [path for path in paths if path not in labels]


def is_cloud_file(path: Path, also: bool = False) -> bool:
    """True where the name of a file is that of a cloud; `also`: or of numbers that may be one."""
    # .npy files of labels, or of their confidence
    beside = path.suffix == ".npy" and path.stem.endswith(("_label", "_confidence"))
    return path.suffix.lower() in (*SUFFIXES, *(TEXTS if also else ())) and not beside


def _places(path: Path) -> Iterator[Path]:
    yield path.with_suffix(".label")
    yield path.with_name(f"{path.stem}_label.npy")
    for above in path.parents[:_LEVELS]:
        below = path.relative_to(above).parts
        for name in FOLDERS:
            place = above.joinpath(name, *(below[1:] or below))
            yield place.with_suffix(".label")
            yield place.with_name(f"{path.stem}_label.npy")
            yield place.with_suffix(".npy")


def read_labels(path: Path, n_points: int) -> np.ndarray:
    """Labels [P] int64 beside a cloud."""
    if path.suffix == ".label":
        words = read_label_file(path, n_points)
        return np.where(words == 0xFFFFFFFF, -1, (words & 0xFFFF).astype(np.int64))
    labels = read_npy(path)
    if not np.issubdtype(labels.dtype, np.integer) or labels.shape != (n_points,):
        raise FileError(
            path, f"labels must be {n_points} integers, found {labels.dtype} {list(labels.shape)}"
        )
    return labels.astype(np.int64)


def read_label_file(path: Path, n_points: int) -> np.ndarray:
    """The words [P] uint32 of a label file: the class is ``word & 0xFFFF``, the instance above."""
    with named(path, ".label file"):
        size = path.stat().st_size
        if size != 4 * n_points:
            raise FileError(path, f"{size} bytes for a scan of {n_points} points, 4 bytes each")
        return np.fromfile(path, dtype="<u4")


def write_label_file(path: Path, raw: np.ndarray) -> None:
    """Write class ids as an official prediction file, whole or not at all."""
    raw = np.asarray(raw)
    if raw.size and (raw.min() < 0 or raw.max() > 0xFFFF):
        raise ValueError(f"{path}: class ids must fit 16 bits, got {raw.min()}..{raw.max()}")
    with whole_file(path) as file:
        file.write(raw.astype("<u4").tobytes())


def confidence_file(path: Path) -> Path:
    """The file ``NAME_confidence.npy`` beside a cloud, or beside its file of labels."""
    return path.with_name(f"{path.stem.removesuffix('_label')}_confidence.npy")


#: A byte of confidence that is 1.
_FULL = np.float32(255)


def write_labelled(
    target: Path,
    source: Path,
    labels: np.ndarray,  # [P] integers, for all points of the file in their order
    as_words: bool = False,
    confidence: np.ndarray | None = None,  # [P] uint8, 255 times the probability of the label
) -> dict[str, Path]:
    """Write the labels of a cloud of any size, and their confidence, whole or not at all.

    * ``.las``, ``.laz``: the whole cloud with other ``classification``.
    * ``.ply``: the vertices with all their properties, ``label`` and ``confidence``.
    * ``.bin``: labels alone, a word each: ``NAME.label``; those that are negative as others'.
    * others: labels alone, beside the target's stem: ``NAME_label.npy``, or ``NAME.label``.

    Beside all but PLY the confidence is ``NAME_confidence.npy``, float32.
    """
    suffix = source.suffix.lower()
    if suffix in las.SUFFIXES:
        path = target.with_name(f"{target.name}{suffix}")
        las.write_las_labels(path, source, labels)
    elif suffix == ".ply":
        path = target.with_name(f"{target.name}{suffix}")
        added: dict[str, np.ndarray] = {"label": labels.astype("<i4")}
        if confidence is not None:
            added["confidence"] = confidence / _FULL
        held = {n: v for n, v in read_columns(source).values.items() if n.lower() not in added}
        columns = held | added
        table = np.empty(len(labels), [(n, v.dtype, v.shape[1:]) for n, v in columns.items()])
        for name, values in columns.items():
            table[name] = values
        write_ply(path, [table], table.dtype)
        return {"labels": path}
    elif as_words or (suffix == ".bin" and labels.min(initial=0) >= 0):
        path = target.with_name(f"{target.name}.label")
        write_label_file(path, labels)
    else:
        path = target.with_name(f"{target.name}_label.npy")
        with whole_file(path) as file:
            np.save(file, labels)
    if confidence is None:
        return {"labels": path}
    beside = confidence_file(path)
    with whole_file(beside) as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": confidence.shape}
        np.lib.format.write_array_header_1_0(file, header)  # type: ignore[no-untyped-call]
        for first in range(0, len(confidence), PART):
            file.write((confidence[first : first + PART] / _FULL).tobytes())
    return {"labels": path, "confidence": beside}
