"""What surfaces of a room look like to a colour camera and to an infrared depth camera."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pcnn.simulate.interiors.cell_noise import cell_noise
from pcnn.simulate.mesh import Floats

# drawn paints of one kind that a room may hold; ten kinds fit into the 256 a mesh can name
_FAMILY_SIZE = 24

Texture = Literal["plain", "grain", "tiles", "carpet", "bricks", "stripes", "marbled"]


@dataclass(frozen=True)
class Paint:
    """One surface: its colour, its pattern, and how it answers infrared light."""

    colour: tuple[float, float, float]  # 0..1
    texture: Texture = "plain"
    contrast: float = 0.06  # of the pattern, a share of the brightness
    size: float = 0.3  # [m] of tiles, stripes, bricks, grain
    returns: float = 0.995  # share of depth pixels that get an answer at normal incidence
    gloss: float = 0.12  # answers vanish below about this cosine of incidence


@dataclass(eq=False)
class Palette:
    """The paints of one room; a mesh names them by number."""

    rng: np.random.Generator
    paints: list[Paint] = field(default_factory=list)
    _numbers: dict[Paint, int] = field(default_factory=dict)
    _families: dict[str, list[int]] = field(default_factory=dict)

    def add(self, paint: Paint) -> int:
        """Return the number of a paint; an equal one is kept once.

        Raises:
            ValueError: more paints than a mesh can name.
        """
        if paint not in self._numbers:
            if len(self.paints) == 256:
                raise ValueError("a room holds at most 256 paints")
            self._numbers[paint] = len(self.paints)
            self.paints.append(paint)
        return self._numbers[paint]

    def _drawn(self, family: str, colour: tuple[float, float, float], **properties: Any) -> int:
        """Add a paint to a family; once the family is full, return one of its members."""
        members = self._families.setdefault(family, [])
        if len(members) == _FAMILY_SIZE:
            return members[int(self.rng.integers(_FAMILY_SIZE))]
        members.append(self.add(Paint(colour, **properties)))
        return members[-1]

    def _colour(self, hue: float, saturation: float, value: float) -> tuple[float, float, float]:
        ramp = np.abs((hue * 6 + np.array([0.0, 4.0, 2.0])) % 6 - 3) - 1  # hexcone model
        rgb = value * (1 - saturation * (1 - np.clip(ramp, 0, 1)))
        red, green, blue = (round(float(channel), 3) for channel in rgb)
        return red, green, blue

    def coloured(self) -> int:
        """Draw a lively colour, as of books, bags and cushions."""
        rng = self.rng
        colour = self._colour(*rng.uniform((0, 0.2, 0.2), (1, 0.85, 0.9)))
        return self._drawn("coloured", colour, contrast=0.04)

    def muted(self) -> int:
        """Draw a matt colour of low saturation, as of walls and fabrics."""
        rng = self.rng
        return self._drawn("muted", self._colour(*rng.uniform((0, 0.0, 0.35), (1, 0.22, 0.95))))

    def light(self) -> int:
        """Draw a light, nearly white paint."""
        rng = self.rng
        return self._drawn(
            "light", self._colour(*rng.uniform((0.05, 0.0, 0.78), (0.2, 0.12, 0.97)))
        )

    def wood(self) -> int:
        """Draw a wooden surface, some of them varnished."""
        rng = self.rng
        colour = self._colour(*rng.uniform((0.05, 0.25, 0.3), (0.11, 0.6, 0.85)))
        gloss = float(rng.uniform(0.1, 0.25))
        return self._drawn("wood", colour, texture="grain", contrast=0.15, size=0.06, gloss=gloss)

    def fabric(self) -> int:
        """Draw cloth or leather."""
        rng = self.rng
        colour = self._colour(*rng.uniform((0, 0.05, 0.12), (1, 0.6, 0.75)))
        return self._drawn("fabric", colour, texture="carpet", contrast=0.10, size=0.01)

    def dark(self) -> int:
        """Draw a dark, shining surface (screens, plastics) that swallows part of the infrared."""
        grey = round(float(self.rng.uniform(0.03, 0.15)), 3)
        return self._drawn("dark", (grey, grey, grey), returns=0.80, gloss=0.35)

    def metal(self) -> int:
        """Draw bare or painted metal, whose slanted faces answer badly."""
        grey = round(float(self.rng.uniform(0.45, 0.8)), 3)
        return self._drawn("metal", (grey, grey, grey), returns=0.95, gloss=0.30)

    def ceramic(self) -> int:
        """Draw white sanitary ware."""
        return self.add(Paint((0.93, 0.93, 0.91), contrast=0.02, returns=0.98, gloss=0.20))

    def glass(self) -> int:
        """Return clear glass: hardly any answer."""
        return self.add(Paint((0.55, 0.62, 0.66), contrast=0.15, returns=0.10, gloss=0.6))

    def mirror(self) -> int:
        """Return a mirror; what it reflects is left out."""
        return self.add(Paint((0.7, 0.73, 0.75), contrast=0.1, returns=0.05, gloss=0.6))

    def lamp(self) -> int:
        """Return a lit surface that blinds the depth camera."""
        return self.add(Paint((1.0, 1.0, 0.96), contrast=0.0, returns=0.35))

    def leaf(self) -> int:
        """Draw foliage."""
        colour = self._colour(*self.rng.uniform((0.22, 0.4, 0.2), (0.36, 0.8, 0.55)))
        return self._drawn("leaf", colour, contrast=0.2)

    def column(self, name: Literal["returns", "gloss"]) -> Floats:
        """Return one property of all paints [P]."""
        return np.array([getattr(paint, name) for paint in self.paints], np.float64)


def _pattern(paint: Paint, points: Floats) -> Floats:
    """Return the brightness of a pattern at points [P, 3], about -1..1."""
    size = paint.size
    x, y, z = points.T
    if paint.texture == "tiles":
        cell = np.floor(points / size).astype(np.int64)
        joint = (np.abs(points / size - np.round(points / size)) * size < 0.004).any(1)
        return np.where(joint, -3.0, 0.6 * (2 * cell_noise(cell) - 1))
    if paint.texture == "bricks":
        row = np.floor(z / size)
        along = (x + y) / (2.5 * size) + 0.5 * (row % 2)
        joint = (np.abs(z / size - np.round(z / size)) < 0.07) | (
            np.abs(along - np.round(along)) < 0.03
        )
        cell = np.stack([np.floor(along), row, np.zeros_like(row)], 1).astype(np.int64)
        return np.where(joint, 1.5, 2 * cell_noise(cell) - 1)
    if paint.texture == "stripes":
        return np.where(((x + y) / size) % 1 < 0.5, -1.0, 1.0)
    if paint.texture == "grain":
        across = x + 0.31 * y + 0.17 * z
        rings = np.sin(2 * np.pi * across / size + 3 * np.sin(2.1 * (x + y + z)))
        return 0.7 * rings + 0.3 * np.sin(9.7 * across / size)
    if paint.texture == "marbled":
        return np.sin(7 * x / size + 4 * np.sin(5 * y / size) + 3 * np.sin(6 * z / size))
    cell = np.floor(points / (0.012 if paint.texture == "carpet" else 0.006)).astype(np.int64)
    return 2 * cell_noise(cell) - 1


def colours(paints: list[Paint], numbers: NDArray[np.uint8], points: Floats) -> Floats:
    """Return the colour of points under even light.

    Args:
        paints: of the room.
        numbers: [P] the paint of every point.
        points: [P, 3] metres, in the room.

    Returns:
        [P, 3] red, green, blue, 0..1.
    """
    rgb = np.zeros((len(points), 3))
    for number in np.unique(numbers):
        paint = paints[number]
        here = numbers == number
        bright = 1 + paint.contrast * _pattern(paint, points[here])
        rgb[here] = np.asarray(paint.colour) * bright[:, None]
    return np.clip(rgb, 0, 1)
