"""Predicted labels as files, in the format of the cloud."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from pcnn.datasets.readers import las
from pcnn.datasets.readers.clouds import read_columns
from pcnn.datasets.readers.columns import PART
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
    * ``.bin``: labels alone, a word each: ``NAME.label``; those that are negative as others'.
    * others: labels alone, beside the target's stem: ``NAME_label.npy``, or ``NAME.label``.

    Beside labels alone the confidence is ``NAME_confidence.npy``, float32.
    """
    suffix = source.suffix.lower()
    if suffix in las.SUFFIXES:
        path = target.with_name(f"{target.name}{suffix}")
        las.write_las_labels(path, source, labels, confidence)
    elif suffix == ".ply":
        path = target.with_name(f"{target.name}{suffix}")
        dtype, parts = _completed(source, labels, confidence)
        write_ply(path, parts, dtype)
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
    with whole_file(path) as file:
        header = {"descr": kind, "fortran_order": False, "shape": (len(values),)}
        np.lib.format.write_array_header_1_0(file, header)  # type: ignore[no-untyped-call]
        for first in range(0, len(values), PART):
            part = values[first : first + PART].astype(kind)
            file.write((part / _FULL if kind == "<f4" else part).tobytes())


def _completed(
    source: Path, labels: np.ndarray, confidence: np.ndarray | None
) -> tuple[np.dtype, Iterator[np.ndarray]]:
    """Points of a file with all their fields, and labels and confidence, part by part."""
    added: dict[str, np.ndarray] = {"label": labels.astype("<i4")}
    if confidence is not None:
        added["confidence"] = confidence / _FULL
    held = {n: v for n, v in read_columns(source).values.items() if n.lower() not in added}
    columns = held | added
    dtype = np.dtype([(n, v.dtype, v.shape[1:]) for n, v in columns.items()])

    def parts() -> Iterator[np.ndarray]:
        for first in range(0, len(labels), PART):
            found = np.empty(len(labels[first : first + PART]), dtype)
            for name, values in columns.items():
                found[name] = values[first : first + PART]
            yield found

    return dtype, parts()
