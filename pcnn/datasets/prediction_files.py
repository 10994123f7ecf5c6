"""Predicted labels as files, in the format of the cloud."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pcnn.datasets.readers import las
from pcnn.datasets.readers.clouds import open_points
from pcnn.datasets.readers.columns import PART
from pcnn.datasets.readers.formats import pcd_header
from pcnn.datasets.readers.label_files import confidence_file, write_label_file
from pcnn.files.ply import write_ply
from pcnn.files.whole_file import whole_file

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

    * ``.las``, ``.laz``: the whole cloud with other ``classification``, and ``confidence``.
    * ``.ply``: the vertices with all their properties, ``label`` and ``confidence``.
    * ``.pcd``: the points with all their fields, ``label`` and ``confidence``, binary.
    * ``.bin``: labels alone, a word each: ``NAME.label``; those that are negative as others'.
    * others: labels alone, beside the target's stem: ``NAME_label.npy``, or ``NAME.label``.

    Beside labels alone the confidence is ``NAME_confidence.npy``, float32.
    """
    suffix = source.suffix.lower()
    if suffix in las.SUFFIXES:
        path = target.with_name(f"{target.name}{suffix}")
        las.write_las_labels(path, source, labels, confidence)
    elif suffix in (".ply", ".pcd"):
        path = target.with_name(f"{target.name}{suffix}")
        negative = bool(labels.size and labels.min() < 0)
        kind = "<i4" if suffix == ".ply" or negative else "<u4"
        added = {"label": kind} if confidence is None else {"label": kind, "confidence": "<f4"}
        dtype, parts = _completed(source, added, labels, confidence)
        if suffix == ".ply":
            write_ply(path, parts, dtype)
        else:
            _write_pcd(path, source, dtype, parts, len(labels))
    else:
        words = not labels.size or bool(0 <= labels.min() <= labels.max() <= 0xFFFF)
        if as_words or (suffix == ".bin" and words):
            path = target.with_name(f"{target.name}.label")
            write_label_file(path, labels)
        else:
            path = target.with_name(f"{target.name}_label.npy")
            _write_npy(path, labels, "<i8")
        if confidence is not None:
            beside = confidence_file(path)
            _write_npy(beside, confidence, "<f4")
            return {"labels": path, "confidence": beside}
    return {"labels": path}


def _write_npy(path: Path, values: np.ndarray, kind: str) -> None:
    """Labels, or confidence in 0..1, part by part."""
    with whole_file(path) as file:
        header = {"descr": kind, "fortran_order": False, "shape": (len(values),)}
        np.lib.format.write_array_header_1_0(file, header)  # type: ignore[no-untyped-call]
        for first in range(0, len(values), PART):
            part = values[first : first + PART].astype(kind)
            file.write((part / _FULL if kind == "<f4" else part).tobytes())


def _completed(
    source: Path, added: Mapping[str, str], labels: np.ndarray, confidence: np.ndarray | None
) -> tuple[np.dtype, Iterator[np.ndarray]]:
    """Points of a file with all their fields, and labels and confidence, part by part."""
    rows: Any = open_points(source).rows  # type: ignore[union-attr]  # no LAS file
    kept = [name for name in rows.dtype.names if name.lower() not in added]
    fields: Any = [(n, rows.dtype[n].base, rows.dtype[n].shape) for n in kept]
    dtype = np.dtype([*fields, *added.items()])

    def parts() -> Iterator[np.ndarray]:
        for first in range(0, len(rows), PART):
            part = rows[first : first + PART]
            found = np.empty(len(part), dtype)
            for name in kept:
                found[name] = part[name]
            found["label"] = labels[first : first + PART]
            if confidence is not None:
                found["confidence"] = confidence[first : first + PART] / _FULL
            yield found

    return dtype, parts()


def _write_pcd(
    path: Path, source: Path, dtype: np.dtype, parts: Iterator[np.ndarray], count: int
) -> None:
    """Write a binary PCD file with the source's view point and rows of an organised cloud."""
    header, _ = pcd_header(source)
    names = dtype.names or ()
    kinds = [dtype[name] for name in names]
    # PCL names padding _, several times in one file; it was numbered
    shown = ["_" if re.fullmatch(r"_\d+", name) else name for name in names]
    lines = [
        "# .PCD v0.7 - Point Cloud Data file format",
        "VERSION 0.7",
        f"FIELDS {' '.join(shown)}",
        f"SIZE {' '.join(str(kind.base.itemsize) for kind in kinds)}",
        f"TYPE {' '.join(kind.base.kind.upper() for kind in kinds)}",
        f"COUNT {' '.join(str(kind.shape[0] if kind.shape else 1) for kind in kinds)}",
        f"WIDTH {' '.join(header.get('WIDTH', [str(count)]))}",
        f"HEIGHT {' '.join(header.get('HEIGHT', ['1']))}",
        f"VIEWPOINT {' '.join(header.get('VIEWPOINT', list('0001000')))}",
        f"POINTS {count}",
        "DATA binary",
    ]
    with whole_file(path) as file:
        file.write(("\n".join(lines) + "\n").encode("ascii"))
        for points in parts:
            file.write(points.tobytes())


#: Shown of what is wrong.
_SHOWN = 3
