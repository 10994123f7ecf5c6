"""How many columns a file of bare numbers has, told by the numbers themselves."""

from __future__ import annotations

import numpy as np

COUNTS = range(3, 11)

_BINS = 32
_PERIOD = 2520  # a multiple of all counts: parts that begin at its multiples keep the columns
_PARTS = 6
_LEAST = 256  # numbers; fewer tell nothing
_TOLD = 0.1  # [nats]
_TIMES = 2.0


def likely_columns(values: np.ndarray) -> int | None:
    """Number of columns whose own histograms tell most about a number.

    Numbers laid out in the right number of columns differ in distribution from column to column;
    in a wrong number every column mixes all of them. With q the share of numbers in a bin and q_k
    that of column k, the column tells the mutual information ``mean_k sum q_k log(q_k / q)``.

    Args:
        values: [N] numbers in the order of the file.

    Returns:
        The smallest of 3..10 that tells all but a twentieth of the most; None where none tells
        anything.
    """
    told = told_by_columns(values)
    most = max(told.values(), default=0.0)
    if most < _TOLD:
        return None
    return min(count for count, much in told.items() if much >= 0.95 * most)


def is_contradicted(values: np.ndarray, count: int) -> bool:
    """Whether another number of columns tells more than twice as much as this one.

    Scans of KITTI tell 0.8 nats by 4 columns and 0.25 by 6; files of 5 or 6 columns tell at most
    0.13 by 4 and 0.7 or more by their own. Twice as many columns seldom tell twice as much, and two
    rows that are one point cannot be told from those of two lasers that fire in turn.
    """
    told = told_by_columns(values)
    return bool(told) and max(told.values()) > _TIMES * told[count] + _TOLD


def told_by_columns(values: np.ndarray) -> dict[int, float]:
    """Mutual information [nats] of column and number for every count, without its bias.

    The bias of sampling, ``(bins - 1)(columns - 1) / 2N``, is taken off. At most six parts of the
    file are looked at. Empty for fewer than 256 numbers.
    """
    if len(values) < _LEAST:
        return {}
    bins = _binned(_looked_at(values))
    return {count: _told(bins, count) for count in COUNTS}


def _looked_at(values: np.ndarray) -> np.ndarray:
    """Parts of the numbers that begin where a row does, in any number of columns."""
    blocks = len(values) // _PERIOD
    if blocks <= _PARTS:
        return values
    starts = np.linspace(0, blocks - 1, _PARTS).astype(np.int64) * _PERIOD
    return np.concatenate([values[start : start + _PERIOD] for start in starts])


def _binned(values: np.ndarray) -> np.ndarray:
    """Bins of about as many numbers each; the last is for NaN and infinite numbers."""
    finite = np.isfinite(values)
    if not finite.any():
        return np.full(len(values), _BINS)
    edges = np.unique(np.quantile(values[finite], np.linspace(0, 1, _BINS + 1)[1:-1]))
    return np.where(finite, np.searchsorted(edges, values, side="right"), _BINS)


def _told(bins: np.ndarray, count: int) -> float:
    n = len(bins) // count * count
    columns = np.arange(n) % count
    table = np.bincount(columns * (_BINS + 1) + bins[:n], minlength=count * (_BINS + 1))
    joint = table.reshape(count, _BINS + 1) / n  # [columns, bins]
    alone = joint.sum(axis=0) / count
    filled = joint > 0
    ratio = joint[filled] / np.broadcast_to(alone, joint.shape)[filled]
    bias = (np.count_nonzero(alone) - 1) * (count - 1) / (2 * n)
    return float((joint[filled] * np.log(ratio)).sum() - bias)
