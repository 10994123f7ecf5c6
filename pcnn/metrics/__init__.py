"""Metrics of segmentation."""

from pcnn.metrics.iou import (
    accuracy,
    best_constant,
    best_constant_accuracy,
    class_accuracy,
    iou,
    mean_class_accuracy,
    miou_official,
    miou_present,
    present,
    summary,
)
from pcnn.metrics.table import iou_table

__all__ = [
    "accuracy",
    "best_constant",
    "best_constant_accuracy",
    "class_accuracy",
    "iou",
    "iou_table",
    "mean_class_accuracy",
    "miou_official",
    "miou_present",
    "present",
    "summary",
]
