"""Metrics of segmentation."""

from pcnn.metrics.iou import (
    accuracy,
    best_constant,
    iou,
    mean_class_accuracy,
    miou_official,
    miou_present,
    summary,
)
from pcnn.metrics.table import iou_table

__all__ = [
    "accuracy",
    "best_constant",
    "iou",
    "iou_table",
    "mean_class_accuracy",
    "miou_official",
    "miou_present",
    "summary",
]
