"""Described points, and what a descriptor is."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from pcnn.registration.rigid_fit import from_quaternion

SHORTEST = 1e-8


@dataclass(frozen=True, eq=False)
class Described:
    """Points with a descriptor each."""

    points: Tensor  # [N, 3] float32 in the cloud's own frame [m]
    features: Tensor  # [N, C] float32; near in Euclidean distance where places look similar

    def to(self, device: torch.device | str) -> Described:
        return Described(self.points.to(device), self.features.to(device))


class Descriptor(Protocol):
    """A cloud in, described points out."""

    @property
    def name(self) -> str:
        """As it is named beside every figure."""

    @property
    def voxel_size(self) -> float:
        """The cell that it describes once [m]; distances of matching follow from it."""

    def __call__(self, points: Tensor) -> Described:
        """Describe points [P, 3] float32 [m]; ValueError where they are too few."""


def described_all(
    descriptor: Descriptor, clouds: Sequence[Tensor], names: Sequence[str]
) -> list[Described]:
    """Describe clouds [P, 3] [m], in one batch where the descriptor can; errors name the cloud."""
    many: Callable[[Sequence[Tensor]], list[Described]] | None = getattr(descriptor, "many", None)
    try:
        if many is not None and clouds:
            return many(clouds)
    except ValueError:
        pass  # of one of them: which one follows
    found = []
    for name, points in zip(names, clouds, strict=True):
        try:
            found.append(descriptor(points))
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

    def __call__(self, points: Tensor) -> Described:
        """Turn points [P, 3] float32 [m] about their mean and describe them."""
        return self.many([points])[0]

    def many(self, clouds: Sequence[Tensor]) -> list[Described]:
        """Turn several clouds and describe them."""
        turns = [self._turn(points) for points in clouds]
        middles = [points.mean(0) for points in clouds]
        turned = [
            (points - middle) @ turn.T
            for points, middle, turn in zip(clouds, middles, turns, strict=True)
        ]
        back = []
        names = [f"cloud {number}" for number in range(len(clouds))]
        found = described_all(self.descriptor, turned, names)
        for one, middle, turn in zip(found, middles, turns, strict=True):
            places = one.points @ turn.to(one.points) + middle.to(one.points)
            back.append(replace(one, points=places))
        return back

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
