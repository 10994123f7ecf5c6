"""The solver of KISS-Matcher (Lim et al. 2025), on matches that are given to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pcnn.bench.installed import Package, modules_of
from pcnn.registration.transforms import assembled

NAME = "kiss-matcher"
PACKAGE = Package(("kiss_matcher",), "kiss_matcher", "MIT", "pip install kiss-matcher")


def kiss_matcher(voxel_size: float) -> Callable[[Tensor, Tensor], Tensor | None]:
    """Its solver at its own settings for voxels of that size [m].

    Matches are pruned to a core of its compatibility graph; graduated non-convexity then finds
    rotation and translation (`prune_and_solve`). It computes on the CPU, on threads of its own.

    Returns:
        Takes points of matches [M, 3] of source and target [m], gives the transform [4, 4] float64,
        or None where it calls its solution invalid.

    Raises:
        ValueError: it is not installed; says how to install it, and its licence.
    """
    (package,) = modules_of(NAME, PACKAGE)
    config: Any = package.KISSMatcherConfig(voxel_size=voxel_size)

    def solve(source: Tensor, target: Tensor) -> Tensor | None:
        if len(source) < 3:
            return None
        matcher = package.KISSMatcher(config)
        found = matcher.prune_and_solve(*(list(side.numpy()) for side in (source, target)))
        if not found.valid:
            return None
        parts = (np.array(part, np.float64) for part in (found.rotation, found.translation))
        rotation, translation = map(torch.from_numpy, parts)
        return assembled(rotation, translation.flatten())

    return solve
