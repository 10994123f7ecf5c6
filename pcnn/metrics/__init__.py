"""Metrics of segmentation."""

from pcnn.metrics.confusion import ConfusionMatrix
from pcnn.metrics.iou import (
    accuracy,
    best_constant,
    iou,
    miou_official,
    miou_present,
    present,
    summary,
)
from pcnn.metrics.table import iou_table

__all__ = [
    "ConfusionMatrix",
    "accuracy",
    "best_constant",
    "iou",
    "iou_table",
    "miou_official",
    "miou_present",
    "present",
    "summary",
]
