from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pcnn.visualize.registration import ShownPair, overlay_picture

matplotlib = pytest.importorskip("matplotlib")


def pixels(path: Path) -> np.ndarray:
    import matplotlib.image

    return matplotlib.image.imread(path)


def test_overlay_shows_both_clouds_before_and_after(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    target, source = rng.random((2, 500, 3))
    transform = np.eye(4)
    transform[0, 3] = 5.0
    pair = ShownPair("x", source - [5, 0, 0], target, transform)
    path = overlay_picture(pair, tmp_path / "a" / "b.png")
    image = pixels(path)
    tint = image[:, :, 0] - image[:, :, 2]
    half = image.shape[1] // 2

    def spans(part: np.ndarray) -> list[tuple[int, int]]:
        """First and last column of blue and of orange."""
        columns = [np.flatnonzero((part * sign > 0.25).any(0)) for sign in (-1, 1)]
        return [(int(found[0]), int(found[-1])) for found in columns]

    blue, orange = spans(tint[:, :half])
    assert orange[1] < blue[0]  # apart as given: the source is left of the target
    blue, orange = spans(tint[:, half:])
    assert abs(blue[0] - orange[0]) + abs(blue[1] - orange[1]) < 10
    alone = ShownPair("y", target, target, None, simulated=True)
    narrow = pixels(overlay_picture(alone, tmp_path / "c.png"))
    assert narrow.shape[1] < image.shape[1]
