"""Transforms for tests."""

import torch
from torch import Tensor


def turned(axis: tuple[float, float, float], degrees: float) -> Tensor:
    """[4, 4] float64 rotation about an axis, by the exponential of its cross product."""
    direction = torch.tensor(axis, dtype=torch.float64)
    x, y, z = (direction / direction.norm()).tolist()
    cross = torch.tensor([[0, -z, y], [z, 0, -x], [-y, x, 0]], dtype=torch.float64)
    matrix = torch.eye(4, dtype=torch.float64)
    matrix[:3, :3] = torch.linalg.matrix_exp(cross * degrees * torch.pi / 180)
    return matrix


def shifted(x: float, y: float, z: float) -> Tensor:
    """[4, 4] float64 translation."""
    matrix = torch.eye(4, dtype=torch.float64)
    matrix[:3, 3] = torch.tensor([x, y, z], dtype=torch.float64)
    return matrix


def random_pose(seed: int, reach: float = 2.0) -> Tensor:
    """[4, 4] float64: any rotation, a translation of some metres."""
    generator = torch.Generator().manual_seed(seed)
    axis = torch.randn(3, generator=generator).tolist()
    angle = float(torch.rand(1, generator=generator)) * 180
    return shifted(*(torch.randn(3, generator=generator) * reach).tolist()) @ turned(axis, angle)
