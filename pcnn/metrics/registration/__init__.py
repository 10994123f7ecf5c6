"""Metrics of registration: errors of a transform, figures of matches, protocols by name."""

from pcnn.metrics.registration.errors import (
    information_rmse,
    inlier_ratio,
    point_rmse,
    rotation_error,
    translation_error,
)
from pcnn.metrics.registration.pair_results import JudgedPairs, PairId, PairResult, judged
from pcnn.metrics.registration.protocols import (
    NAMES,
    SAMPLES,
    Protocol,
    protocol,
    validation_protocol,
)
from pcnn.metrics.registration.summary import summarize
from pcnn.metrics.registration.table import registration_table

__all__ = [
    "NAMES",
    "SAMPLES",
    "JudgedPairs",
    "PairId",
    "PairResult",
    "Protocol",
    "information_rmse",
    "inlier_ratio",
    "judged",
    "point_rmse",
    "protocol",
    "registration_table",
    "rotation_error",
    "summarize",
    "translation_error",
    "validation_protocol",
]
