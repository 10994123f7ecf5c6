"""Curves as SVG that stands in a page: drawn by classes of its style sheet, so dark or light."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

WIDTH, HEIGHT = 420, 230
LEFT, RIGHT, TOP, BOTTOM = 62, 10, 26, 34

#: Points of a line; of more, means of neighbours are drawn.
MOST = 500

#: Largest over smallest value from which a scale of positive values is logarithmic.
_WIDE = 50.0


@dataclass(frozen=True)
class Line:
    """A line of a chart.

    Args:
        label: shown when the pointer rests on it.
        points: steps and values, at least one, in rising order of steps.
        style: which of the colours and dashes of the page.
        dots: whether points are marked, as those of validations are.
    """

    label: str
    points: Sequence[tuple[float, float]]
    style: int
    dots: bool = False


def line_chart(title: str, lines: Sequence[Line], wide: bool = False) -> str:
    """Draw lines over steps.

    Args:
        title: heading.
        lines: at least one.
        wide: draw positive values that differ by much on a logarithmic scale.

    Returns:
        An `<svg>` element.
    """
    drawn = [(line, _thinned(line.points)) for line in lines]
    steps = [step for _, points in drawn for step, _ in points]
    values = [value for _, points in drawn for _, value in points]
    logarithmic = wide and min(values) > 0 and max(values) / min(values) > _WIDE
    x = _Axis.of(min(steps), max(steps), LEFT, WIDTH - RIGHT)
    y = _Axis.of(min(values), max(values), HEIGHT - BOTTOM, TOP, logarithmic)
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">',
        f'<text class="title" x="{LEFT}" y="15">{escape(title)}</text>',
    ]
    for tick in y.ticks():
        at = y(tick)
        parts.append(f'<path class="grid" d="M{LEFT} {at:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(
            f'<text class="tick end" x="{LEFT - 5}" y="{at + 4:.1f}">{_short(tick)}</text>'
        )
    for tick in x.ticks(least=1.0):
        parts.append(
            f'<text class="tick mid" x="{x(tick):.1f}" y="{HEIGHT - 16}">{_short(tick)}</text>'
        )
    parts.append(f'<text class="tick end" x="{WIDTH - RIGHT}" y="{HEIGHT - 3}">step</text>')
    for line, points in drawn:
        places = [(x(step), y(value)) for step, value in points]
        path = "L".join(f"{a:.1f} {b:.1f}" for a, b in places)
        last = f"{escape(line.label)}: {points[-1][1]:.4g} at the end"
        kind = "line" if line.dots else "line thin"
        parts.append(f'<g class="{kind} r{line.style}"><title>{last}</title>')
        parts.append(f'<path d="M{path}"/>')
        if line.dots or len(points) == 1:
            parts += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="2.6"/>' for a, b in places]
        parts.append("</g>")
    return "".join([*parts, "</svg>"])


@dataclass(frozen=True)
class _Axis:
    low: float
    high: float
    begin: float  # pixels
    end: float
    logarithmic: bool

    @classmethod
    def of(
        cls, low: float, high: float, begin: float, end: float, logarithmic: bool = False
    ) -> _Axis:
        """An axis that holds the values, with some air where they are one."""
        if low == high:
            low, high = low - (abs(low) * 0.1 or 1.0), high + (abs(high) * 0.1 or 1.0)
        return cls(low, high, begin, end, logarithmic)

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        if self.logarithmic:
            low, high, value = math.log(low), math.log(high), math.log(value)
        return self.begin + (value - low) / (high - low) * (self.end - self.begin)

    def ticks(self, least: float = 0.0) -> list[float]:
        """Round values within, about five, at least so far from each other."""
        if self.logarithmic:
            first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            every = max(1, (last - first) // 4)
            tens = [10.0**power for power in range(first, last + 1, every)]
            return [tick for tick in tens if self.low <= tick <= self.high]
        raw = (self.high - self.low) / 5
        ten = 10.0 ** math.floor(math.log10(raw))
        step = max(next(m * ten for m in (1, 2, 5, 10) if m * ten >= raw), least)
        first = math.ceil(self.low / step)
        return [step * n for n in range(first, math.floor(self.high / step + 1e-9) + 1)]


def _thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    if len(points) <= MOST:
        return list(points)
    parts = np.array_split(np.asarray(points, dtype=np.float64), MOST)
    return [(float(step), float(value)) for step, value in (part.mean(axis=0) for part in parts)]


def _short(value: float) -> str:
    """A number of an axis: thousands as k, millions as M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.4g}{unit}"
    return f"{value:.4g}"
