"""Which scans of KITTI odometry make a pair: the rule behind the published 1358 / 180 / 555."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: Sequences of every split.
SPLITS = {"train": (0, 1, 2, 3, 4, 5), "val": (6, 7), "test": (8, 9, 10)}

#: Left out by every published list: (sequence, first frame, second frame).
EXCLUDED = frozenset({(8, 15, 58)})

MIN_DISTANCE = 10.0  # [m]
WINDOW = 100  # frames


def pairs_of(
    positions: NDArray[np.floating], distance: float = MIN_DISTANCE, window: int = WINDOW
) -> list[tuple[int, int]]:
    """Pairs of frames of a sequence, greedy and without overlap.

    From frame t the first frame of t..t+99 that is *more* than 10 m away is looked for; its
    predecessor is the partner, so partners are just *less* than 10 m apart. The next pair starts
    behind the partner. Where the window ends first, t moves by one.

    Source: FCGF, lib/data_loaders.py, KITTINMPairDataset, after 3DFeat-Net.

    Args:
        positions: [F, 3] translations of the camera's poses [m].
        distance: [m].
        window: frames looked at.

    Returns:
        (first frame, second frame) in rising order.
    """
    pairs = []
    frame, frames = 0, len(positions)
    while frame < frames:
        ahead = positions[frame : frame + window]
        far = np.linalg.norm(ahead - positions[frame], axis=1) > distance
        if not far.any():
            frame += 1
            continue
        partner = frame + int(far.argmax()) - 1
        if partner > frame:  # else the next frame is too far already: nothing pairs with itself
            pairs.append((frame, partner))
        frame = partner + 1
    return pairs


def pairs_between(
    positions: NDArray[np.floating], low: float, high: float, window: int = WINDOW
) -> list[tuple[int, int]]:
    """All pairs of frames of a sequence that lie a certain distance apart, for training.

    Args:
        positions: [F, 3] translations of the camera's poses [m].
        low: smallest distance [m].
        high: largest distance [m].
        window: frames looked at, the first one included.

    Returns:
        (first frame, second frame) in rising order.
    """
    pairs = []
    for frame in range(len(positions)):
        apart = np.linalg.norm(positions[frame + 1 : frame + window] - positions[frame], axis=1)
        found = np.flatnonzero((apart >= low) & (apart <= high))
        pairs += [(frame, frame + 1 + int(place)) for place in found]
    return pairs
