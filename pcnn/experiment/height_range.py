"""Count classes over height and range in one set of scans, test them on another."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from pcnn.console import Console
from pcnn.datasets.semantic_kitti import TRAIN_SEQUENCES, VAL_SEQUENCES, SemanticKITTI
from pcnn.datasets.transforms.crops import crop
from pcnn.experiment.run_folder import write_whole
from pcnn.files.simulated import is_simulated
from pcnn.metrics import iou, iou_table, summary
from pcnn.metrics.confusion import ConfusionMatrix
from pcnn.models import HeightRange
from pcnn.plural import counted as numbered


def compare(
    train: Path,
    test: Path,
    train_sequences: Sequence[int] | None,
    test_sequences: Sequence[int] | None,
    radius: float | None,
    labels: str,
    out: Path | None,
    console: Console,
) -> dict[str, float]:
    """Print the IoU of every class, and write all figures to `out` where that is given.

    Args:
        train: folder with ``sequences``, whose labelled scans are counted.
        test: likewise, tested on.
        train_sequences: None takes those of the official training set that are there.
        test_sequences: None takes the official validation sequence.
        radius: horizontal distance from the sensor [m] within which points count, or None.
        labels: name of the label map.
        out: JSON file.
        console: to print on.

    Returns:
        The figures by name, as an evaluation has them.

    Raises:
        FileNotFoundError: scans or labels are missing.
        ValueError: files that break their format.
    """
    there = [n for n in TRAIN_SEQUENCES if (train / "sequences" / f"{n:02d}").is_dir()]
    counted = scans(train, train_sequences or there or TRAIN_SEQUENCES, labels)
    tested = scans(test, test_sequences or VAL_SEQUENCES, labels)
    names = counted.label_map.class_names
    model = HeightRange(len(names))
    confusion = ConfusionMatrix(len(names))
    for index in range(len(counted)):
        cloud = crop(counted.read(index), radius)
        assert cloud.labels is not None  # the set holds labelled scans alone
        model.update(cloud.points, cloud.labels)
    for index in range(len(tested)):
        cloud = crop(tested.read(index), radius)
        assert cloud.labels is not None
        confusion.update(model(cloud.points), cloud.labels)
    counts = confusion.compute()
    source = "simulated" if is_simulated(test) else "real"
    learnt = "simulated" if is_simulated(train) else "real"
    title = (
        "IoU per class by height and range alone: "
        f"{numbered(len(counted), f'{learnt} scan')} counted, "
        f"{numbered(len(tested), f'{source} scan')} tested"
    )
    console.print(iou_table(counts, list(names), title))
    figures = {name: float(value) for name, value in summary(counts, "test/").items()}
    for name, value in zip(names, iou(counts).tolist(), strict=True):
        figures[f"test/iou/{name}"] = value
    if out is not None:
        content = {
            "source": source,
            "model": "height_range",
            "task": "segmentation",
            "trained_on": {"source": learnt, "scans": len(counted), "root": str(train)},
            "metrics": figures,
        }
        write_whole(out, json.dumps(content, indent=2) + "\n")
    return figures


def scans(root: Path, sequences: Sequence[int], labels: str) -> SemanticKITTI:
    """The labelled scans of some sequences."""
    return SemanticKITTI(root, sequences, labels)
