"""A registered pair as a page."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pcnn.visualize.registration import SOURCE, TARGET
from pcnn.visualize.view.cloud import ViewedCloud
from pcnn.visualize.view.page import POINTS, View


def pair_view(
    name: str,
    source: NDArray[np.floating],  # [N, 3], orange
    target: NDArray[np.floating],  # [M, 3], blue
    transform: NDArray[np.floating] | None,  # [4, 4] from source to target
    names: tuple[str, str] = ("source", "target"),
    facts: str = "",
    points: int = POINTS,
    simulated: tuple[bool, bool] = (False, False),
) -> View:
    """A pair as given and as registered, which a switch of the page changes."""
    clouds = [
        ViewedCloud(names[0], source, pose=transform, color=SOURCE, simulated=simulated[0]),
        ViewedCloud(names[1], target, color=TARGET, simulated=simulated[1]),
    ]
    return View(clouds, title=name, note=facts, points=points, first="clouds")
