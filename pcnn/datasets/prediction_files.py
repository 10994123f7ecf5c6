"""Predicted labels as files: in the format of the cloud, or as a zip for SemanticKITTI's server."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from pcnn.datasets.readers import las
from pcnn.datasets.readers.label_files import completed_ranges, confidence_file, write_label_file
from pcnn.datasets.readers.pcd import write_pcd_with
from pcnn.datasets.readers.ply import open_ply, write_ply_parts
from pcnn.datasets.semantic_kitti import TEST_SEQUENCES
from pcnn.datasets.semantic_kitti_labels import SEMANTIC_KITTI
from pcnn.files.rows import Rows, ranges
from pcnn.files.whole_file import whole_file


@dataclass(frozen=True, eq=False)
class _Numbers:
    """Numbers of another type than they are held in, converted range by range.

    Args:
        values: [P], in memory or mapped.
        kind: of the numbers that are read.
        full: what is read as 1.
    """

    values: np.ndarray
    kind: np.dtype
    full: int = 1

    def __len__(self) -> int:
        return len(self.values)

    def read(self, first: int, count: int) -> np.ndarray:
        found = self.values[first : first + count].astype(self.kind)
        return found if self.full == 1 else found / self.kind.type(self.full)


def write_labelled(
    target: Path,
    source: Path,
    labels: np.ndarray,
    as_words: bool = False,
    confidence: np.ndarray | None = None,
) -> dict[str, Path]:
    """Write the labels of a cloud of any size, and their confidence, whole or not at all.

    * ``.las``, ``.laz``: the whole cloud with other ``classification``, and ``confidence``.
    * ``.ply``: the vertices with all their properties, ``label`` and ``confidence``.
    * ``.pcd``: the points with all their fields, ``label`` and ``confidence``, binary.
    * ``.bin``: labels alone, a word each: ``NAME.label``; those that are negative as others'.
    * others: labels alone, beside the target's stem: ``NAME_label.npy``, or ``NAME.label``.

    Beside labels alone the confidence is ``NAME_confidence.npy``, float32.

    Args:
        target: place of the result, without suffix.
        source: the cloud's file.
        labels: [P] integers, for all points of the file in their order.
        as_words: write ``NAME.label`` instead of ``NAME_label.npy``, whatever the format.
        confidence: [P] uint8, 255 times the probability of the label; written in 0..1. None leaves
            it out.

    Returns:
        The file of the ``labels``, and that of the ``confidence`` where it has one of its own.

    Raises:
        ValueError: labels that the format cannot hold.
    """
    suffix = source.suffix.lower()
    added: dict[str, Rows] = {}
    if confidence is not None:
        added["confidence"] = _Numbers(confidence, np.dtype("<f4"), full=255)
    if suffix in las.SUFFIXES:
        path = target.with_name(f"{target.name}{suffix}")
        las.write_las_labels(path, source, labels, confidence)
    elif suffix == ".ply":
        path = target.with_name(f"{target.name}.ply")
        _write_ply(path, source, {"label": _Numbers(labels, np.dtype("<i4")), **added})
    elif suffix == ".pcd":
        path = target.with_name(f"{target.name}.pcd")
        kind = np.dtype("<i4" if labels.size and labels.min() < 0 else "<u4")
        write_pcd_with(path, source, {"label": _Numbers(labels, kind), **added})
    else:
        if as_words or (suffix == ".bin" and _fit_words(labels)):
            path = target.with_name(f"{target.name}.label")
            write_label_file(path, labels)
        else:
            path = target.with_name(f"{target.name}_label.npy")
            _write_npy(path, _Numbers(labels, np.dtype("<i8")))
        if added:
            beside = confidence_file(path)
            _write_npy(beside, added["confidence"])
            return {"labels": path, "confidence": beside}
    return {"labels": path}


def _fit_words(labels: np.ndarray) -> bool:
    return not labels.size or bool(0 <= labels.min() <= labels.max() <= 0xFFFF)


def _write_npy(path: Path, rows: Rows) -> None:
    with whole_file(path) as file:
        held = {"descr": rows.kind.str, "fortran_order": False, "shape": (len(rows),)}
        np.lib.format.write_array_header_1_0(file, held)
        for part in ranges(rows):
            file.write(part.tobytes())


def _write_ply(path: Path, source: Path, added: Mapping[str, Rows]) -> None:
    rows = open_ply(source, float("inf"))  # it was read before
    kept = [(n, rows.kind[n]) for n in rows.kind.names or () if n.lower() not in added]
    dtype = np.dtype([*kept, *((name, values.kind) for name, values in added.items())])
    write_ply_parts(path, dtype, len(rows), completed_ranges(rows, dtype, added))


#: Shown of what is wrong.
_SHOWN = 3


def write_submission(folder: Path, expected: Mapping[str, int], target: Path) -> int:
    """Zip label files after checking that every scan has its own, whole and in official ids.

    Inside lie ``sequences/XX/predictions/NNNNNN.label`` and nothing else, in sorted order.

    Args:
        folder: holds ``sequences``, as evaluation wrote it.
        expected: number of points of every scan of the set, by names such as ``11/000000``.
        target: the zip, written whole or not at all.

    Returns:
        Number of files in it.

    Raises:
        ValueError: a file is missing, has another number of labels than its scan has points, holds
            an id that no class is written as, or a zip of no scans.
    """
    if not expected:
        raise ValueError(f"{target}: a submission of no scans")
    places = {name: PurePosixPath("sequences", *_place(name)) for name in sorted(expected)}
    wrong = [
        said
        for name, place in places.items()
        if (said := _wrong_with(folder / place, expected[name])) is not None
    ]
    if wrong:
        more = f"; and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
        raise ValueError(f"{target} is not written: {'; '.join(wrong[:_SHOWN])}{more}")
    with (
        whole_file(target) as file,
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive,  # type: ignore[arg-type]
    ):
        for place in places.values():
            archive.write(folder / place, str(place))
    return len(places)


def missing_sequences(expected: Mapping[str, int]) -> list[str]:
    """The sequences of the test server, 11 to 21, of which no scan is expected."""
    there = {name.split("/")[0] for name in expected}
    return [f"{number:02d}" for number in TEST_SEQUENCES if f"{number:02d}" not in there]


def _place(name: str) -> tuple[str, str, str]:
    sequence, _, scan = name.partition("/")
    return sequence, "predictions", f"{scan}.label"


def _wrong_with(path: Path, points: int) -> str | None:
    if not path.is_file():
        return f"{path} is missing"
    if path.stat().st_size != 4 * points:
        return f"{path} has {path.stat().st_size} bytes for a scan of {points} points"
    ids = np.unique(np.fromfile(path, dtype="<u4"))
    # 0 is what a point outside of a crop gets: the server counts it as wrong
    unknown = np.setdiff1d(ids, [0, *SEMANTIC_KITTI.train_to_raw])
    return f"{path} holds the id {int(unknown[0])}, of no class" if len(unknown) else None
