"""Described points, and what a descriptor is."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from pcnn.registration.rigid_fit import from_quaternion

SHORTEST = 1e-8
CLOUDS = 8  # that are described at once


@dataclass(frozen=True, eq=False)
class Described:
    """Points with a descriptor each."""

    points: Tensor  # [N, 3] float32 in the cloud's own frame [m]
    features: Tensor  # [N, C] float32; near in Euclidean distance where places look similar

    def to(self, device: torch.device | str) -> Described:
        return Described(self.points.to(device), self.features.to(device))


class Descriptor(Protocol):
    """Clouds in, described points out."""

    @property
    def name(self) -> str:
        """As it is named beside every figure."""

    @property
    def voxel_size(self) -> float:
        """The cell that it describes once [m]; distances of matching follow from it."""

    def __call__(self, clouds: Sequence[Tensor]) -> list[Described]:
        """Describe clouds [P, 3] float32 [m] at once; ValueError where one has too few points."""


def described_all(
    descriptor: Descriptor, clouds: Sequence[Tensor], names: Sequence[str]
) -> list[Described]:
    """Describe clouds [P, 3] [m], some in a batch; errors name the cloud."""
    found: list[Described] = []
    for at in range(0, len(clouds), CLOUDS):
        some = clouds[at : at + CLOUDS]
        try:
            found += descriptor(some)
        except ValueError:  # of one of them: which one follows
            for name, points in zip(names[at : at + CLOUDS], some, strict=True):
                try:
                    found += descriptor([points])
                except ValueError as error:
                    raise ValueError(f"{name}: {error}") from error
    return found


@dataclass(frozen=True)
class TurnedAtRandom:
    """A descriptor of clouds turned at random, by their points and a seed; answers as given."""

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

    def __call__(self, clouds: Sequence[Tensor]) -> list[Described]:
        """Turn clouds [P, 3] float32 [m] about their means, describe them, turn them back."""
        turns = [self._turn(points) for points in clouds]
        middles = [points.mean(0) for points in clouds]
        turned = [
            (points - middle) @ turn.T
            for points, middle, turn in zip(clouds, middles, turns, strict=True)
        ]
        found = zip(self.descriptor(turned), middles, turns, strict=True)
        return [
            replace(one, points=one.points @ turn.to(one.points) + middle.to(one.points))
            for one, middle, turn in found
        ]

    def _turn(self, points: Tensor) -> Tensor:
        content = points.cpu().contiguous().numpy().tobytes()
        digest = hashlib.blake2b(content, digest_size=4, key=str(self.seed).encode()).digest()
        turn = random_rotation(torch.Generator().manual_seed(int.from_bytes(digest, "big")))
        return turn.to(points)


def random_rotation(generator: torch.Generator) -> Tensor:
    """A rotation ``[3, 3]`` float64, drawn evenly from all rotations by a unit quaternion."""
    quaternion = torch.randn(1, 4, generator=generator, dtype=torch.float64)
    return from_quaternion(torch.nn.functional.normalize(quaternion))[0]


def unit_length(features: Tensor) -> Tensor:
    """Divide rows by their Euclidean length; one shorter than 1e-8 stays, with its gradient."""
    if features.dtype in (torch.float16, torch.bfloat16):
        features = features.float()
    square = features.square().sum(1, keepdim=True)
    return features * torch.where(square > SHORTEST**2, square, 1).rsqrt()
