"""Classes of labels as files hold them: names, colours, and the class of every label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pcnn.datasets.labels import LabelMap, read_classes
from pcnn.datasets.s3dis_labels import S3DIS
from pcnn.datasets.semantic_kitti_labels import SEMANTIC_KITTI
from pcnn.visualize.palette import UNLABELLED, distinct_colours
from pcnn.visualize.view.cloud import ViewedCloud

#: Classes of LAS files. Source: LAS specification 1.4 R15 (ASPRS, 2019), table 17.
LAS_CLASSES = {
    0: "never classified",
    1: "unclassified",
    2: "ground",
    3: "low vegetation",
    4: "medium vegetation",
    5: "high vegetation",
    6: "building",
    7: "low noise",
    9: "water",
    10: "rail",
    11: "road",
    13: "wire guard",
    14: "wire conductor",
    15: "transmission tower",
    16: "wire connector",
    17: "bridge deck",
    18: "high noise",
}

#: Labels with a name of their own; the rarest of more have no class.
_MOST = 254

#: Names that stand for the labels of a format or a set.
KNOWN = ("kitti", "s3dis", "las")


@dataclass(frozen=True, eq=False)
class Classes:
    """Names and colours of the classes of a page."""

    names: tuple[str, ...]  # C names
    colors: NDArray[np.uint8]  # [C, 3] uint8


def with_classes(
    clouds: Sequence[ViewedCloud], wanted: str | Path | None = None, likely: str | None = None
) -> tuple[list[ViewedCloud], Classes]:
    """Clouds with class ids in place of the labels of their files, and these classes."""
    found = [values for cloud in clouds for values in cloud.labels.values()]
    if not found:
        if wanted is not None and str(wanted) not in KNOWN:
            read_classes(wanted)  # a name that is wrong is told even where it is not needed
        return list(clouds), Classes((), np.empty((0, 3), np.uint8))
    if wanted is None and likely == "kitti":
        raw = _label_map("kitti").raw_to_train
        wanted = "kitti" if all(np.isin(values, list(raw)).all() for values in found) else None
    elif wanted is None:
        wanted = likely
    if wanted is None or str(wanted) == "las":
        classes, known = _numbered(found, LAS_CLASSES if wanted is not None else {})
        return [_translated(cloud, known) for cloud in clouds], classes
    labels = _label_map(wanted)
    classes = Classes(labels.class_names, np.array(labels.colors, np.uint8))
    return [
        replace(
            cloud,
            labels={name: labels.encode(raw, cloud.name) for name, raw in cloud.labels.items()},
        )
        for cloud in clouds
    ], classes


def _label_map(wanted: str | Path) -> LabelMap:
    known = {"kitti": SEMANTIC_KITTI, "s3dis": S3DIS}
    return known.get(str(wanted)) or read_classes(Path(wanted))


def _numbered(
    found: Sequence[NDArray[np.integer]], names: dict[int, str]
) -> tuple[Classes, NDArray[np.int64]]:
    """A class for every label, and the labels in rising order; -1 is no class."""
    values, counts = np.unique(np.concatenate(found), return_counts=True)
    values, counts = values[values >= 0], counts[values >= 0]
    known = np.sort(values[np.argsort(-counts, kind="stable")[:_MOST]])
    colors = distinct_colours(len(known))
    colors[[names.get(value, "").endswith("classified") for value in known.tolist()]] = UNLABELLED
    called = tuple(names.get(value, f"label {value}") for value in known.tolist())
    return Classes(called, colors), known


def _translated(cloud: ViewedCloud, known: NDArray[np.int64]) -> ViewedCloud:
    def ids(raw: NDArray[np.integer]) -> NDArray[np.int64]:
        rows = np.searchsorted(known, raw).clip(max=max(len(known) - 1, 0))
        return np.where(known[rows] == raw, rows, -1) if len(known) else np.full(len(raw), -1)

    return replace(cloud, labels={name: ids(raw) for name, raw in cloud.labels.items()})
