import math

import pytest
import torch

from pcnn.registration.cloud_measures import voxel_firsts, voxel_means, voxels_of


def test_voxels_are_those_of_brute_force() -> None:
    points = torch.rand(200, 3) - 0.5
    cells, of, count = torch.unique(
        torch.floor(points.double() / 0.2).long(), dim=0, return_inverse=True, return_counts=True
    )
    voxel, points_in = voxels_of(points, 0.2)
    assert torch.equal(voxel, of)
    assert torch.equal(points_in, count)
    means = torch.stack([points[of == row].double().mean(0) for row in range(len(cells))])
    torch.testing.assert_close(voxel_means(points, 0.2), means.float())
    firsts = sorted(int((of == row).nonzero()[0]) for row in range(len(cells)))
    assert voxel_firsts(points, 0.2).tolist() == firsts


@pytest.mark.parametrize(
    ("value", "words"),
    [(math.nan, "NaN or infinite"), (math.inf, "NaN or infinite"), (1e30, "too large")],
)
def test_what_has_no_cell_is_refused(value: float, words: str) -> None:
    points = torch.rand(5, 3)
    points[2, 1] = value
    with pytest.raises(ValueError, match=words):
        voxels_of(points, 0.1)
