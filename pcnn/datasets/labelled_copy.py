"""Predicted labels of a cloud, in the format that the cloud came in."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pcnn.datasets import las
from pcnn.datasets.label_files import write_label_file
from pcnn.datasets.ply import read_ply, write_ply
from pcnn.datasets.whole_file import whole_file


def write_labelled(target: Path, source: Path, labels: np.ndarray, as_words: bool = False) -> Path:
    """Write the labels of a cloud, whole or not at all.

    * ``.las``, ``.laz``: the whole cloud with other ``classification``.
    * ``.ply``: the vertices with all their properties and ``label``.
    * others: labels alone, beside the target's stem: ``NAME_label.npy``, or ``NAME.label``.

    Args:
        target: place of the result, without suffix.
        source: the cloud's file.
        labels: [P] integers, for all points of the file in their order.
        as_words: write ``NAME.label`` instead of ``NAME_label.npy``.

    Returns:
        The file written.

    Raises:
        ValueError: labels that the format cannot hold.
    """
    suffix = source.suffix.lower()
    if suffix in las.SUFFIXES:
        path = target.with_name(f"{target.name}{suffix}")
        las.write_las_labels(path, source, labels)
    elif suffix == ".ply":
        path = target.with_name(f"{target.name}.ply")
        _write_ply(path, source, labels)
    elif as_words:
        path = target.with_name(f"{target.name}.label")
        write_label_file(path, labels)
    else:
        path = target.with_name(f"{target.name}_label.npy")
        with whole_file(path) as file:
            np.save(file, labels.astype(np.int64))
    return path


def _write_ply(path: Path, source: Path, labels: np.ndarray) -> None:
    vertices = read_ply(source)
    names = vertices.dtype.names or ()
    kept = [(name, vertices.dtype[name]) for name in names if name.lower() != "label"]
    labelled = np.empty(len(vertices), dtype=[*kept, ("label", "<i4")])
    for name, _ in kept:
        labelled[name] = vertices[name]
    labelled["label"] = labels
    write_ply(path, labelled)
