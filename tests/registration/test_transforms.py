import math

import pytest
import torch

from pcnn.registration.rigid_fit import quaternion_vector
from pcnn.registration.transforms import (
    inverse,
    rigid,
    rotation_angle,
    transform_points,
)
from tests.registration.poses import random_pose, shifted, turned


def test_a_quarter_turn_moves_x_to_y() -> None:
    moved = transform_points(shifted(0, 0, 5) @ turned((0, 0, 1), 90), torch.eye(3).double())
    expected = torch.tensor([[0, 1, 5], [-1, 0, 5], [0, 0, 6]], dtype=torch.float64)
    torch.testing.assert_close(moved, expected, atol=1e-12, rtol=0)


def test_inverse_undoes() -> None:
    poses = torch.stack([random_pose(seed) for seed in range(5)])
    eye = torch.eye(4, dtype=torch.float64).expand(5, 4, 4)
    torch.testing.assert_close(inverse(poses) @ poses, eye, atol=1e-12, rtol=0)


@pytest.mark.parametrize("degrees", [0.0, 1e-7, 0.1, 45.0, 90.0, 179.999, 180.0])
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


def test_a_read_transform_is_kept_as_it_is() -> None:
    pose = random_pose(3)
    assert torch.equal(rigid(pose.numpy()), pose)
