"""How many columns a file of bare numbers has, by its numbers."""

from __future__ import annotations

import numpy as np

from pcnn.files.rows import HeldRows, Rows

COUNTS = range(3, 11)

_BINS = 32
_PERIOD = 2520  # a multiple of all counts: parts that begin at its multiples keep the columns
_PARTS = 6
_LEAST = 256  # numbers; fewer say nothing
_LEAST_NATS = 0.1
_TIMES = 2.0


def likely_columns(values: np.ndarray) -> int | None:
    """Number of columns that carries most information about the numbers.

    In the right number of columns the distributions differ from column to column; in a wrong number
    every column mixes them all. With q the share of numbers in a bin and q_k that of column k, the
    mutual information of column and number is ``mean_k sum q_k log(q_k / q)``.

    Args:
        values: [N] numbers in the order of the file.

    Returns:
        The smallest of 3..10 with 95 % of the largest information; None where there is none.
    """
    found = information_by_columns(values)
    most = max(found.values(), default=0.0)
    if most < _LEAST_NATS:
        return None
    return min(count for count, nats in found.items() if nats >= 0.95 * most)


def is_contradicted(values: np.ndarray, count: int) -> bool:
    """True where another number of columns carries more than twice the information of this one.

    Scans of KITTI have 0.8 nats in 4 columns and 0.25 in 6; files of 5 or 6 columns have at most
    0.13 in 4 and 0.7 or more in their own. Twice as many columns seldom have twice as much: points
    of two rows each look like two lasers that fire in turn.
    """
    found = information_by_columns(values)
    return bool(found) and max(found.values()) > _TIMES * found[count] + _LEAST_NATS


def information_by_columns(values: np.ndarray) -> dict[int, float]:
    """Mutual information [nats] of column and number for every count, without its bias.

    The bias of sampling, ``(bins - 1)(columns - 1) / 2N``, is taken off. At most six parts of the
    file are looked at. Empty for fewer than 256 numbers.
    """
    if len(values) < _LEAST:
        return {}
    bins = _binned(looked_at(HeldRows(values)))
    return {count: _information(bins, count) for count in COUNTS}


def looked_at(numbers: Rows) -> np.ndarray:
    """Some of the numbers of a file, [N], which tell of its columns as all of them would.

    Args:
        numbers: all of them, a row each. They are taken in parts that begin where a row of the
            cloud does, in any number of columns.
    """
    blocks = len(numbers) // _PERIOD
    if blocks <= _PARTS:
        return numbers.read(0, len(numbers))
    starts = np.linspace(0, blocks - 1, _PARTS).astype(np.int64) * _PERIOD
    return np.concatenate([numbers.read(start, _PERIOD) for start in starts.tolist()])


def _binned(values: np.ndarray) -> np.ndarray:
    """Bins of about as many numbers each; the last is for NaN and infinite numbers."""
    finite = np.isfinite(values)
    if not finite.any():
        return np.full(len(values), _BINS)
    edges = np.unique(np.quantile(values[finite], np.linspace(0, 1, _BINS + 1)[1:-1]))
    return np.where(finite, np.searchsorted(edges, values, side="right"), _BINS)


def _information(bins: np.ndarray, count: int) -> float:
    n = len(bins) // count * count
    places = bins[:n].reshape(-1, count) + np.arange(count) * (_BINS + 1)
    table = np.bincount(places.reshape(-1), minlength=count * (_BINS + 1))
    joint = table.reshape(count, _BINS + 1) / n  # [columns, bins]
    alone = joint.sum(axis=0) / count
    filled = joint > 0
    ratio = joint[filled] / np.broadcast_to(alone, joint.shape)[filled]
    bias = (np.count_nonzero(alone) - 1) * (count - 1) / (2 * n)
    return float((joint[filled] * np.log(ratio)).sum() - bias)
