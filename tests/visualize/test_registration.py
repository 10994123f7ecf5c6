from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pcnn.visualize.pair import DrawnMatches, ShownPair
from pcnn.visualize.registration import overlay_picture

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


def test_matches_are_lines_right_ones_green(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    cloud = rng.random((400, 3)) * [4.0, 3.0, 0.1]

    def share(right: np.ndarray) -> tuple[float, float]:
        """Of green and of red in the picture's last row."""
        matches = DrawnMatches(cloud, cloud[::-1], right)
        pair = ShownPair("x", cloud, cloud, np.eye(4), matches=matches)
        path = overlay_picture(pair, tmp_path / "m.png")
        part = pixels(path)[-500:, :, :3]
        green = (part[..., 1] > part[..., 0] + 0.1) & (part[..., 1] > part[..., 2] + 0.1)
        red = (part[..., 0] > part[..., 1] + 0.1) & (abs(part[..., 1] - part[..., 2]) < 0.05)
        return float(green.mean()), float(red.mean())

    for right in (True, False):
        green, red = share(np.full(400, right))
        shown, absent = (green, red) if right else (red, green)
        assert (shown > 0.02, absent) == (True, pytest.approx(0, abs=1e-3))
    none = DrawnMatches(cloud[:0], cloud[:0], np.zeros(0, dtype=bool))
    pair = ShownPair("x", cloud, cloud, np.eye(4), matches=none)
    plain = pixels(overlay_picture(pair, tmp_path / "n.png"))
    assert plain.shape[0] < pixels(tmp_path / "m.png").shape[0]
