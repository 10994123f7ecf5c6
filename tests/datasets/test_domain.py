"""Statistics of a training, and clouds that are unlike it."""

from __future__ import annotations

import numpy as np

from pcnn.datasets.domain import Domain, figures


def scan(n: int, width: float, intensity: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.random((n, 3)) * [width, width / 2, 3], np.full((n, 1), intensity, np.float32)


def test_figures_of_a_cloud() -> None:
    places = np.array([[0.0, 0, 0], [0.4, 0, 0], [9.5, 0, 0], [9.5, 2.5, 1.5]])
    extent, height, density, mean = figures(places, np.array([[1.0], [2], [3], [6]]), 1.0)
    assert (density, mean) == (4 / 3, 3)
    assert 9 < extent < 9.5
    assert 1 < height < 1.5


def test_what_is_unlike_the_training_is_told() -> None:
    trained = [scan(2000, width, 0.3, seed) for seed, width in enumerate((40, 50, 60))]
    found = Domain.of(trained, ["intensity"], 0.5)
    assert found is not None
    again = Domain.of_config(found.as_config())
    assert again is not None
    for domain in (found, again):
        assert domain.doubts(*scan(2000, 45, 0.4), 0.5) == []
        (doubt,) = domain.doubts(*scan(2000, 45, 0.0), 0.5)
        assert "mean intensity of 0, those of the training 0.3 to 0.3" in doubt
        doubts = domain.doubts(*scan(2000, 3, 0.3), 0.5)
        assert ["wide" in doubts[0], "points a voxel" in doubts[1]] == [True, True]
        assert domain.doubts(np.empty((0, 3)), np.empty((0, 1)), 0.5) == []
    assert Domain.of([], [], 0.5) is Domain.of_config(None) is None
