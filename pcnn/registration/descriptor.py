"""Described points, and what a descriptor is."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from pcnn.models.overlap_head import OverlapHead
from pcnn.registration.rigid_fit import from_quaternion

SHORTEST = 1e-8


@dataclass(frozen=True, eq=False)
class HeadInput:
    """The rows that a head scores the points of a cloud by, beside their places."""

    head: OverlapHead  # of the network that described the cloud
    rows: Tensor  # [N, D] float32
    voxel_size: float  # the unit of places for it [m]


@dataclass(frozen=True, eq=False)
class Described:
    """Points with a descriptor each."""

    points: Tensor  # [N, 3] float32 in the cloud's own frame [m]
    features: Tensor  # [N, C] float32; near in Euclidean distance where places look similar
    scored: HeadInput | None = None  # what the points of a pair of clouds are scored by

    def to(self, device: torch.device | str) -> Described:
        """The same on another device; a head stays where it is."""
        return Described(self.points.to(device), self.features.to(device), self.scored)


class Descriptor(Protocol):
    """A cloud in, described points out."""

    @property
    def name(self) -> str:
        """As it is named beside every figure."""

    @property
    def voxel_size(self) -> float:
        """The cell that it describes once [m]; distances of matching follow from it."""

    def __call__(self, points: Tensor) -> Described:
        """Describe points [P, 3] float32 [m].

        Raises:
            ValueError: too few points.
        """
        ...


@dataclass(frozen=True)
class TurnedAtRandom:
    """A descriptor that is given every cloud turned at random, and answers in the cloud's frame.

    Rotations are drawn evenly from all there are; a cloud's depends on its points and the seed.
    """

    descriptor: Descriptor  # that describes the turned clouds
    seed: int = 0  # of the rotations

    @property
    def name(self) -> str:
        """That of the descriptor, and what is done to the clouds."""
        return f"{self.descriptor.name}, clouds turned at random"

    @property
    def voxel_size(self) -> float:
        """That of the descriptor [m]."""
        return self.descriptor.voxel_size

    def __call__(self, points: Tensor) -> Described:
        """Turn points [P, 3] float32 [m] about their mean and describe them."""
        content = points.cpu().contiguous().numpy().tobytes()
        digest = hashlib.blake2b(content, digest_size=4, key=str(self.seed).encode()).digest()
        turn = random_rotation(torch.Generator().manual_seed(int.from_bytes(digest, "big")))
        turn, middle = turn.to(points), points.mean(0)
        found = self.descriptor((points - middle) @ turn.T)
        back = found.points @ turn.to(found.points) + middle.to(found.points)
        return replace(found, points=back)


class Remembered:
    """A descriptor that describes every cloud once, for clouds that belong to several pairs."""

    def __init__(self, descriptor: Descriptor) -> None:
        self.name, self.voxel_size = descriptor.name, descriptor.voxel_size
        self._descriptor = descriptor
        # clouds are kept with what was found, so that their numbers stay their own
        self._found: dict[int, tuple[Tensor, Described]] = {}

    def __call__(self, points: Tensor) -> Described:
        """Describe points [P, 3]; the same tensor is described once."""
        if id(points) not in self._found:
            self._found[id(points)] = points, self._descriptor(points)
        return self._found[id(points)][1]


def random_rotation(generator: torch.Generator) -> Tensor:
    """A rotation ``[3, 3]`` float64, drawn evenly from all rotations by a unit quaternion."""
    quaternion = torch.randn(1, 4, generator=generator, dtype=torch.float64)
    return from_quaternion(torch.nn.functional.normalize(quaternion))[0]


def unit_length(features: Tensor) -> Tensor:
    """Divide every row by its Euclidean length.

    A row shorter than 1e-8 stays as it is, and its gradient too: a division by almost nothing
    would hand the network a gradient of 1e8.
    """
    if features.dtype in (torch.float16, torch.bfloat16):
        features = features.float()
    square = features.square().sum(1, keepdim=True)
    return features * torch.where(square > SHORTEST**2, square, 1).rsqrt()
