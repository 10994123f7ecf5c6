"""Metrics of registration: errors of a transform, figures of matches, protocols by name."""

from pcnn.metrics.registration.bootstrap import Figure, mean_of, median_of, paired_difference
from pcnn.metrics.registration.curves import recall_curve
from pcnn.metrics.registration.errors import (
    information_rmse,
    point_rmse,
    rotation_error,
    translation_error,
)
from pcnn.metrics.registration.matches import inlier_ratio, match_distances
from pcnn.metrics.registration.pair_result import PairResult
from pcnn.metrics.registration.protocols import NAMES, SAMPLES, Protocol, Success, protocol
from pcnn.metrics.registration.summary import (
    Summary,
    counts_for_recall,
    succeeded,
    summarize,
)
from pcnn.metrics.registration.table import registration_table, scene_table

__all__ = [
    "NAMES",
    "SAMPLES",
    "Figure",
    "PairResult",
    "Protocol",
    "Success",
    "Summary",
    "counts_for_recall",
    "information_rmse",
    "inlier_ratio",
    "match_distances",
    "mean_of",
    "median_of",
    "paired_difference",
    "point_rmse",
    "protocol",
    "recall_curve",
    "registration_table",
    "rotation_error",
    "scene_table",
    "succeeded",
    "summarize",
    "translation_error",
]
