from __future__ import annotations

import numpy as np
import pytest
import torch

from pcnn.datasets.transforms.crops import sphere_crop
from pcnn.geometry import quantize
from tests.datasets.clouds import cloud


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def cells(points: torch.Tensor, size: float) -> torch.Tensor:
    return quantize(points, voxel_size=size, batch_size=1).keys


@pytest.mark.parametrize("cell", [None, 4.0, (4.0, 2.0, 1.0)])
def test_the_nearest_rows_to_a_point_stay_with_all_their_points(cell):
    given = cloud(600)
    part = sphere_crop(given, generator(), 40, cell)
    kept = torch.zeros(600, dtype=torch.bool)
    kept[part.point_index] = True
    middle = given.points[int(generator().random() * 600)] * torch.tensor([1.0, 1.0, 0.0])
    assert torch.equal(part.points, (given.points - middle)[kept])
    assert torch.equal(part.labels, given.labels[kept])
    if cell is None:
        places = (given.points - middle).double()
        assert part.n_points == 40
    else:
        size = torch.tensor([cell] * 3 if isinstance(cell, float) else cell).double()
        places = (torch.floor((given.points - middle).double() / size) + 0.5) * size
        assert len(cells(part.points, cell)) == 40
    height = given.points[int(generator().random() * 600), 2].double()
    distance = (places - torch.stack([height * 0, height * 0, height])).norm(dim=1)
    assert distance[kept].max() <= distance[~kept].min() + 1e-12


def test_small_clouds_stay_whole():
    for n in (0, 1, 40):
        given = cloud(n)
        assert sphere_crop(given, generator(), 40, None) is given
        assert sphere_crop(given, generator(), 40, 0.5) is given
    given = cloud(600)
    assert sphere_crop(given, generator(), 40, 30.0) is given  # all in a few cells


def test_a_generator_gives_one_crop_and_is_used_alike_by_all_clouds():
    given, used = cloud(600), generator(3)
    first = sphere_crop(given, generator(3), 50, 1.0)
    assert torch.equal(first.points, sphere_crop(given, used, 50, 1.0).points)
    other = generator(3)
    sphere_crop(cloud(1), other, 50, 1.0)
    assert used.random() == other.random()
    assert not torch.equal(first.points, sphere_crop(given, generator(4), 50, 1.0).points)


def test_what_makes_no_sense_is_refused():
    with pytest.raises(ValueError, match="point_max must be at least 1"):
        sphere_crop(cloud(5), generator(), 0, None)
    bad = cloud(50)
    bad.points[3, 1] = float("nan")
    with pytest.raises(ValueError, match=r"c\.bin: 1 of 50 points"):
        sphere_crop(bad, generator(), 5, 1.0)
