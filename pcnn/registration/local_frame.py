"""Clouds moved near zero, where float32 keeps their shape, and transforms between their frames."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False)
class LocalCloud:
    """A cloud about an origin of its own."""

    points: Tensor  # [P, 3] float32 [m], the coordinates that were given minus origin
    origin: Tensor  # [3] float64 [m]; zero unless the coordinates are those of a map
    missing: int = 0  # rows that were left out, as they hold no return

    @property
    def moved(self) -> bool:
        """True where the origin is not that of the coordinates that were given."""
        return bool(self.origin.any())

    def given(self, points: Tensor) -> Tensor:
        """Points [N, 3] of the local frame in the coordinates that were given, float64 if moved."""
        return points.double() + self.origin if self.moved else points


def to_given(transform: Tensor, source: LocalCloud, target: LocalCloud) -> Tensor:
    """A transform between local frames as one between the coordinates that were given.

    ``T = translate(o_target) T_local translate(-o_source)``, in float64: the rotation stays and
    the translation becomes ``t + o_target - R o_source``.
    """
    return _shifted(transform, source.origin, target.origin)


def about(transform: Tensor, origin: Tensor) -> Tensor:
    """A transform as one of the same clouds minus an origin [3]: ``t - o + R o``."""
    return _shifted(transform, -origin, -origin)


def _shifted(transform: Tensor, source: Tensor, target: Tensor) -> Tensor:
    made = transform.clone()
    made[:3, 3] += target - made[:3, :3] @ source
    return made
