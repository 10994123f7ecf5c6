"""Registration recall against one threshold."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pcnn.metrics.registration.bootstrap import mean_of
from pcnn.metrics.registration.pair_result import PairResult
from pcnn.metrics.registration.protocols import Protocol
from pcnn.metrics.registration.summary import below, column, counts_for_recall


def recall_curve(
    results: Sequence[PairResult], protocol: Protocol, error: str, limits: NDArray[np.floating]
) -> NDArray[np.float64]:
    """Share of the counted pairs below each limit of one error, averaged as the protocol does.

    Args:
        results: one a pair.
        protocol: says which pairs count and how they are averaged; its thresholds play no part.
        error: ``rre`` [deg], ``rte`` [m] or ``rmse`` [m].
        limits: [L].

    Returns:
        [L] 0..1, rising with the limit.

    Raises:
        ValueError: another error.
    """
    if error not in ("rre", "rte", "rmse"):
        raise ValueError(f"a recall curve is over rre, rte or rmse, got {error!r}")
    names = sorted({result.scene for result in results})
    scenes = np.array([names.index(result.scene) for result in results])
    counted = counts_for_recall(results, protocol)
    values = column(results, error)
    return np.array(
        [
            mean_of(
                below(values, float(limit), True).astype(np.float64),
                counted,
                scenes,
                protocol.average,
                draws=0,
            ).value
            for limit in limits
        ]
    )
