import math

import pytest
import torch

from pcnn.registration.rigid_fit import quaternion_vector
from pcnn.registration.transforms import inverse, rigid, rotation_angle
from tests.registration.poses import random_pose, turned


def test_inverse_undoes() -> None:
    poses = torch.stack([random_pose(seed) for seed in range(5)])
    eye = torch.eye(4, dtype=torch.float64).expand(5, 4, 4)
    torch.testing.assert_close(inverse(poses) @ poses, eye, atol=1e-12, rtol=0)


@pytest.mark.parametrize("degrees", [0.0, 1e-7, 90.0, 180.0])
def test_angle(degrees: float) -> None:
    angle = rotation_angle(turned((1, -2, 3), degrees)[:3, :3])
    assert float(angle) == pytest.approx(degrees, abs=1e-9)


@pytest.mark.parametrize("degrees", [0.0, 1.0, 90.0, 179.0])
def test_quaternion_vector_is_axis_times_half_sine(degrees: float) -> None:
    axis = torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64)
    vector = quaternion_vector(turned((1, -2, 3), degrees)[:3, :3])
    expected = axis / axis.norm() * math.sin(math.radians(degrees / 2))
    torch.testing.assert_close(vector, expected, atol=1e-9, rtol=0)


@pytest.mark.parametrize(
    ("matrix", "words"),
    [
        (torch.eye(3), "4 x 4"),
        (torch.full((4, 4), torch.nan), "NaN"),
        (torch.diag(torch.tensor([1.0, 1, 1, 2])), "bottom row"),
        (torch.diag(torch.tensor([1.0, 1, -1, 1])), "no rotation"),
        (torch.diag(torch.tensor([2.0, 2, 2, 1])), "no rotation"),
    ],
)
def test_what_is_no_rigid_transform_is_refused(matrix: torch.Tensor, words: str) -> None:
    with pytest.raises(ValueError, match=f"pose.*{words}"):
        rigid(matrix, "pose")
