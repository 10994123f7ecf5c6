"""A registered pair of clouds, and its picture: before and after."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from pcnn.visualize.page import FAINT, INK, from_above, new_page, saved

TARGET = (31, 88, 178)
SOURCE = (232, 112, 16)
PIXELS = 700
LINE = 125  # letters of the line below the heading
MARK = "   SIMULATED DATA"  # behind the heading


#: Axes of a picture by the name of the view.
VIEWS = {"along z": (0, 1, 2), "along y": (0, 2, 1)}


@dataclass(frozen=True, eq=False)
class ShownPair:
    """Two clouds with an estimated transform, as pictures and W&B show them."""

    name: str  # of the pair, the heading
    source: NDArray[np.floating]  # [N, 3] in the source's frame [m]
    target: NDArray[np.floating]  # [M, 3] in the target's frame [m]
    transform: NDArray[np.floating] | None  # [4, 4], source to target; None where none was found
    facts: str = ""  # errors and inliers in a line
    simulated: bool = False  # whether the clouds are simulated, which is then written large

    @classmethod
    def of(
        cls, name: str, source: Tensor, target: Tensor, transform: Tensor | None, **more: Any
    ) -> ShownPair:
        """The pair of tensors on any device; arguments as in the class, NaN is no transform."""
        found = None if transform is None or bool(transform.isnan().any()) else transform
        here, there = (points.detach().float().cpu().numpy() for points in (source, target))
        return cls(name, here, there, None if found is None else found.cpu().numpy(), **more)

    @property
    def placed(self) -> NDArray[np.floating] | None:
        """The source moved by the transform, [N, 3]; None where there is none."""
        if self.transform is None:
            return None
        return self.source @ self.transform[:3, :3].T + self.transform[:3, 3]


def _draw(places: Sequence[Any], clouds: Sequence[np.ndarray], shades: Any, state: str) -> None:
    """Draw clouds in one frame, each in a colour, once a view."""
    points = np.concatenate(clouds)
    colours = np.repeat(np.array(shades, np.uint8), [len(cloud) for cloud in clouds], axis=0)
    low, high = np.quantile(points, [0.005, 0.995], axis=0)
    extent = float(max((high - low).max() / 2 * 1.05, 1e-3))
    centred = points - (low + high) / 2
    # neither cloud hides the other: points are drawn in the order of their depth alone
    for place, (view, axes) in zip(places, VIEWS.items(), strict=True):
        image = from_above(centred[:, axes], colours, extent, PIXELS, dot=2)
        place.imshow(image, extent=(-extent, extent, -extent, extent))
        place.set_title(f"{state}{view}", loc="left", fontsize=12, color=INK)
        place.tick_params(labelsize=8, colors=FAINT)


def _heading(figure: Any, title: str, note: str, simulated: bool, inch: float) -> None:
    style = {"ha": "left", "fontsize": 15, "color": INK, "weight": "bold"}
    figure.suptitle(title + MARK * simulated, x=0.02, y=1 - 0.2 * inch, **style)
    words = {"va": "top", "fontsize": 10.5, "color": FAINT}
    figure.text(0.02, 1 - 0.62 * inch, textwrap.fill(note, LINE), **words)


def overlay_picture(pair: ShownPair, path: str | Path) -> Path:
    """Draw two clouds as they are given and as their transform puts them, along z and along y.

    The target is blue, the source orange. Without a transform only "as given" is drawn.
    """
    states = [("as given, ", pair.source)]
    if pair.placed is not None:
        states.append(("registered, ", pair.placed))
    rows = len(VIEWS)
    inch = 1 / (1.0 + 5.2 * rows)  # of the figure's height
    figure = new_page(5.2 * len(states), 1.0 + 5.2 * rows)
    for column, (state, moved) in enumerate(states, 1):
        places = [
            figure.add_subplot(rows, len(states), row * len(states) + column)
            for row in range(len(VIEWS))
        ]
        _draw(places, [pair.target, moved], [TARGET, SOURCE], state)
    note = f"target blue, source orange, metres   {pair.facts}"
    _heading(figure, pair.name, note, pair.simulated, inch)
    figure.subplots_adjust(
        left=0.06, right=0.98, top=1 - 1.15 * inch, bottom=0.4 * inch, hspace=0.12, wspace=0.14
    )
    return saved(figure, path)
