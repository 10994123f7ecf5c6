"""Runs of two made-up methods on the same pairs."""

from dataclasses import replace

import numpy as np

from pcnn.metrics.registration import PairResult


def runs(number: int, quality: float, seed: int, pairs: int = 30) -> list[list[PairResult]]:
    """Runs on pairs of three scenes; some lack an estimate, some matches.

    Args:
        number: of runs.
        quality: share of pairs registered, roughly.
        seed: of all that is drawn.
        pairs: in a run.
    """
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(number):
        run = []
        for place in range(pairs):
            good = rng.random() < quality
            scale = 0.5 if good else 8.0
            pair = PairResult(
                "abc"[place % 3],
                place,
                place + 1 + place % 4,  # every fourth is consecutive
                float(rng.gamma(2.0, scale)),
                float(rng.gamma(2.0, 0.04 * scale)),
                float(rng.gamma(2.0, 0.05 * scale)),
                float(rng.beta(1, 12)),
                index=place,
            )
            if rng.random() < 0.1:
                pair = replace(pair, rre=np.nan, rte=np.nan, rmse=np.nan)
            if rng.random() < 0.1:
                pair = replace(pair, inlier_ratio=np.nan)
            run.append(pair)
        found.append(run)
    return found


def failed(pairs: int = 30) -> list[PairResult]:
    """One run on the same pairs that registers none of them."""
    return [replace(pair, rre=90.0, rte=9.0, rmse=9.0) for pair in runs(1, 0.0, 0, pairs)[0]]
