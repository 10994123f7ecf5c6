"""Colours of classes that have none of their own."""

from __future__ import annotations

import colorsys
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

UNLABELLED = (205, 208, 214)  # light grey: there, but in the background of a light picture
# predictions that the truth confirms, contradicts, or does not know
RIGHT, WRONG, UNJUDGED = (200, 205, 213), (214, 39, 40), (236, 238, 242)


def distinct_colours(count: int) -> NDArray[np.uint8]:
    """Make `count` colours that are told apart from each other, from white and from light grey.

    Greedy: each colour is the one of 216 candidates (24 hues, 3 lightnesses, 3 saturations) that is
    farthest, in the perceptual space Oklab, from all before it. The first n colours therefore do
    not depend on `count`.

    Source: Ottosson, "A perceptual color space for image processing", 2020 (Oklab).
    """
    candidates = np.array(
        [
            colorsys.hls_to_rgb(hue / 24, lightness, saturation)
            for saturation in (0.85, 0.55, 0.35)
            for lightness in (0.45, 0.65, 0.27)
            for hue in range(24)
        ]
    )
    places = _oklab(candidates)  # [216, 3]
    taken = _oklab(np.array([[255, 255, 255], UNLABELLED]) / 255.0)
    distance = np.linalg.norm(places[:, None] - taken, axis=2).min(1)
    chosen: list[int] = []
    for _ in range(min(count, len(candidates))):
        best = int(distance.argmax()) if chosen else 14  # begin with a plain blue
        chosen.append(best)
        distance = np.minimum(distance, np.linalg.norm(places - places[best], axis=1))
    rows = np.round(255 * candidates[np.resize(chosen, count).astype(np.int64)])
    return rows.astype(np.uint8).reshape(count, 3)


def _oklab(rgb: NDArray[np.floating]) -> NDArray[np.floating]:
    """Convert sRGB in [0, 1], [N, 3], to Oklab."""
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    cones = linear @ np.array(
        [
            [0.4122214708, 0.2119034982, 0.0883024619],
            [0.5363325363, 0.6806995451, 0.2817188376],
            [0.0514459929, 0.1073969566, 0.6299787005],
        ]
    )
    lab: NDArray[np.floating] = np.cbrt(cones) @ np.array(
        [
            [0.2104542553, 1.9779984951, 0.0259040371],
            [0.7936177850, -2.4285922050, 0.7827717662],
            [-0.0040720468, 0.4505937099, -0.8086757660],
        ]
    )
    return lab


def colourise(
    labels: NDArray[np.integer], colours: NDArray[np.uint8], unlabelled: Sequence[int] = UNLABELLED
) -> NDArray[np.uint8]:
    """Look up the colour of every label."""
    ids = np.asarray(labels).astype(np.int64)
    table = np.concatenate((np.asarray(colours, np.uint8), np.array([unlabelled], np.uint8)))
    return table[np.where((ids >= 0) & (ids < len(colours)), ids, len(colours))]
