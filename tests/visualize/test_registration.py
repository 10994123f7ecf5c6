from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pcnn.visualize.registration import overlay_picture, recall_picture

matplotlib = pytest.importorskip("matplotlib")


def pixels(path: Path) -> np.ndarray:
    import matplotlib.image

    return matplotlib.image.imread(path)


def test_overlay_shows_both_clouds_before_and_after(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    target, source = rng.random((2, 500, 3))
    transform = np.eye(4)
    transform[0, 3] = 5.0
    path = overlay_picture(source - [5, 0, 0], target, transform, tmp_path / "a" / "b.png", "x")
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
    narrow = pixels(overlay_picture(target, target, None, tmp_path / "c.png", simulated=True))
    assert narrow.shape[1] < image.shape[1]


def test_recall_curves(tmp_path: Path) -> None:
    curves = {
        "RMSE m": ([0.0, 0.1, 0.2], {"5000": [0.0, 0.5, 0.9], "250": [0.0, 0.2, 0.4]}),
        "RRE deg": ([0.0, 5.0, 9.0], {"5000": [0.0, 0.5, 0.9], "250": [0.0, 0.2, 0.4]}),
    }
    path = recall_picture(curves, {"RMSE m": 0.2, "RRE deg": None}, tmp_path / "r.png", "t")
    assert pixels(path).shape[1] == 1000
