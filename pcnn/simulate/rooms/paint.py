"""Paints of a room: their look to a colour camera and to an infrared depth camera."""

from __future__ import annotations

from colorsys import hsv_to_rgb
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pcnn.simulate.mesh import Floats, cell_noise

Texture = Literal["plain", "tiles"]
Range = tuple[float, float]


@dataclass(frozen=True)
class Paint:
    """One surface: its colour, its pattern, and how it answers infrared light."""

    colour: tuple[float, float, float]  # 0..1
    texture: Texture = "plain"
    contrast: float = 0.06  # of the pattern, a share of the brightness
    size: float = 0.3  # [m] of tiles
    returns: float = 0.995  # share of depth pixels that get an answer at normal incidence
    gloss: float = 0.12  # answers vanish below about this cosine of incidence


# ranges of hue, saturation and value, and other properties
_FAMILIES: dict[str, tuple[tuple[Range, Range, Range], dict[str, Any]]] = {
    # lively colours, as of books, bags and cushions
    "coloured": (((0, 1), (0.2, 0.85), (0.2, 0.9)), {"contrast": 0.04}),
    # matt colours of low saturation, as of walls
    "muted": (((0, 1), (0.0, 0.22), (0.35, 0.95)), {}),
    "light": (((0.05, 0.2), (0.0, 0.12), (0.78, 0.97)), {}),
    "wood": (((0.05, 0.11), (0.25, 0.6), (0.3, 0.85)), {"contrast": 0.15, "gloss": 0.17}),
    "fabric": (((0, 1), (0.05, 0.6), (0.12, 0.75)), {"contrast": 0.10}),
    # shining screens and plastics that swallow part of the infrared
    "dark": (((0, 1), (0, 0), (0.03, 0.15)), {"returns": 0.80, "gloss": 0.35}),
    # bare or painted metal, whose slanted faces answer badly
    "metal": (((0, 1), (0, 0), (0.45, 0.8)), {"returns": 0.95, "gloss": 0.30}),
    "leaf": (((0.22, 0.36), (0.4, 0.8), (0.2, 0.55)), {"contrast": 0.2}),
}
_FIXED = {
    "ceramic": Paint((0.93, 0.93, 0.91), contrast=0.02, returns=0.98, gloss=0.20),
    "glass": Paint((0.55, 0.62, 0.66), contrast=0.15, returns=0.10, gloss=0.6),
    # its reflections are left out
    "mirror": Paint((0.7, 0.73, 0.75), contrast=0.1, returns=0.05, gloss=0.6),
    # a lit surface blinds the depth camera
    "lamp": Paint((1.0, 1.0, 0.96), contrast=0.0, returns=0.35),
}
# drawn paints of one family that a room may hold; all families fit into the 256 a mesh can name
_FAMILY_SIZE = 24


@dataclass(eq=False)
class Palette:
    """The paints of one room; a mesh names them by number."""

    rng: np.random.Generator
    paints: list[Paint] = field(default_factory=list)
    _families: dict[str, list[int]] = field(default_factory=dict)

    def add(self, paint: Paint) -> int:
        """The number of a paint; an equal one is kept once."""
        if paint not in self.paints:
            self.paints.append(paint)
        return self.paints.index(paint)

    def draw(self, name: str) -> int:
        if name in _FIXED:
            return self.add(_FIXED[name])
        ranges, properties = _FAMILIES[name]
        members = self._families.setdefault(name, [])
        if len(members) == _FAMILY_SIZE:
            return members[int(self.rng.integers(_FAMILY_SIZE))]
        red, green, blue = hsv_to_rgb(*self.rng.uniform(*np.transpose(ranges)).tolist())
        members.append(self.add(Paint((red, green, blue), **properties)))
        return members[-1]

    def find(self, name: str) -> int | None:
        """The number of a paint for a catalogue; None for any other word."""
        return self.draw(name) if name in _FIXED or name in _FAMILIES else None


def colours(paints: list[Paint], numbers: NDArray[np.uint8], points: Floats) -> Floats:
    rgb = np.zeros((len(points), 3))
    for number in np.unique(numbers):
        paint = paints[number]
        here = numbers == number
        bright = 1 + paint.contrast * _pattern(paint, points[here])
        rgb[here] = np.asarray(paint.colour) * bright[:, None]
    return np.clip(rgb, 0, 1)


def _pattern(paint: Paint, points: Floats) -> Floats:
    """The brightness of a pattern at points [P, 3], about -1..1."""
    if paint.texture == "tiles":
        places = points / paint.size
        joint = (np.abs(places - np.round(places)) * paint.size < 0.004).any(1)
        return np.where(joint, -3.0, 0.6 * (2 * cell_noise(np.floor(places)) - 1))
    return 2 * cell_noise(np.floor(points / 0.01)) - 1
