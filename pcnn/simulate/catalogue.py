"""Objects described in YAML: drawn numbers, and parts made of simple shapes.

    stool:
      class: chair
      draw: {height: 0.38 .. 0.46, seat: fabric 70 % | wood}
      parts:
        metal:
        - {tube: [[0.19, 0, 0], [0.1, 0, height], 0.014], mirror: x}
        seat:
        - cushion: [[0, 0, height], [0.36, 0.36, 0.06], 0.6]

An object has the keys `class`, its label, or that of its user; `draw`, names and their values, of
which the caller may give some; `parts`, shapes by paint, which may be a drawn name; `use`, other
objects with values for their names, or a list of such, which see the names of their user, too;
`one_of` in place of all these, objects and their shares; `scale`, a factor; `top`, the height at
which small things may stand on it; `size`, width and depth that it takes, where they differ.

A shape is the name of a function of `pcnn.simulate.shapes` with its arguments, and perhaps `if`,
`class`, `for` (names and several values each: one shape for each combination), `turn` (axis, angle,
point), `mirror` (`x`, `y` or `xy`: adds the mirrored shapes) and `move`, applied in this order.

A value is a number; `a .. b`, drawn evenly; `whole a .. b`, a drawn whole number, both ends
included; `30 %`, true by this chance; `this 30 % | that`, an alternative by chance, where shares
left out are evenly what remains; or an expression of numbers, names and `_FUNCTIONS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from pcnn.files.bounded import read_yaml
from pcnn.simulate.mesh import Floats, Mesh, surface
from pcnn.simulate.shapes import SHAPES, leaves, turned

#: returns the number of a paint by its name, None for any other word
Paints = Callable[[str], int | None]

_FUNCTIONS: dict[str, Any] = {
    "cos": np.cos, "max": np.maximum, "min": np.minimum, "round": np.round, "sin": np.sin,
    "pi": np.pi,
    "line": lambda a, b, count: np.linspace(a, b, max(int(count), 1)),  # evenly from a to b
    "row": lambda count, pitch: (np.arange(int(count)) - (int(count) - 1) / 2) * pitch,  # about 0
    "steps": np.arange,  # a, a + step, ... below b
}  # fmt: skip
_MODIFIERS = {"if", "class", "for", "turn", "mirror", "move"}


@dataclass(frozen=True, eq=False)
class Thing:
    """An object that stands on z = 0 about the origin."""

    mesh: Mesh
    top: float | None  # [m] height at which small things may stand on it
    width: float  # along x [m]
    depth: float  # along y [m]
    height: float


@dataclass(eq=False)
class _Drawing:
    """The names of one object while it is made."""

    rng: np.random.Generator
    paints: Paints
    names: dict[str, Any]
    count: int | None = None  # of the shapes that are made at once

    def paint(self, value: Any) -> Any:
        number = self.paints(value) if isinstance(value, str) else None
        return value if number is None else number

    def value(self, node: Any) -> Any:
        """Draw or compute a value, or an array of a list of values."""
        if isinstance(node, str):
            return _read(node)(self)
        if not isinstance(node, list):
            return node
        values = [self.value(part) for part in node]
        several = any(isinstance(value, np.ndarray) and value.ndim for value in values)
        if several and not any(isinstance(part, list) for part in node):
            return np.stack(np.broadcast_arrays(*values), -1)  # several points
        return np.array(values, np.float64)


class Catalogue:
    """The objects of one YAML file."""

    def __init__(self, path: Path, labels: Mapping[str, int]) -> None:
        self.entries: dict[str, dict[str, Any]] = read_yaml(path)
        self._labels = labels

    def make(self, rng: np.random.Generator, paints: Paints, name: str, **given: Any) -> Thing:
        parts: list[tuple[Floats, int, int]] = []  # triangles, paint, label
        top, size = self._make(parts, _Drawing(rng, paints, given), name, None)
        counts = [len(triangles) for triangles, _, _ in parts]
        mesh = surface(
            np.concatenate([np.zeros((0, 3, 3)), *(triangles for triangles, _, _ in parts)]),
            np.repeat([paint for _, paint, _ in parts], counts),
            np.repeat([label for _, _, label in parts], counts),
        )
        corners = np.concatenate([np.zeros((1, 3)), mesh.triangles.reshape(-1, 3)])
        width, depth = 2 * np.abs(corners[:, :2]).max(0) if size is None else size
        return Thing(mesh, top, float(width), float(depth), float(corners[:, 2].max()))

    def _make(
        self, parts: list[tuple[Floats, int, int]], drawing: _Drawing, name: str, label: int | None
    ) -> tuple[float | None, Floats | None]:
        """Add the parts of an object to a list; return its top and its size."""
        entry, names = self.entries[name], drawing.names
        if "one_of" in entry:
            shares = np.array(list(entry["one_of"].values()))
            chosen = int(drawing.rng.choice(len(shares), p=shares / shares.sum()))
            return self._make(parts, drawing, list(entry["one_of"])[chosen], label)
        label = self._labels[entry["class"]] if label is None and "class" in entry else label
        for key, node in entry.get("draw", {}).items():
            if key not in names:
                names[key] = drawing.paint(drawing.value(node))
        first = len(parts)
        for used, each in entry.get("use", {}).items():
            for nodes in each if isinstance(each, list) else [each]:
                own = names | {key: drawing.value(node) for key, node in nodes.items()}
                self._make(parts, _Drawing(drawing.rng, drawing.paints, own), used, label)
        for paint, shapes in entry.get("parts", {}).items():
            number = names.get(paint, paint)
            for shape in shapes:
                triangles = _shape(shape, drawing)
                if len(triangles):
                    number = drawing.paint(number)
                    own_label = self._labels[shape["class"]] if "class" in shape else label
                    parts.append((triangles, number, own_label or 0))
        if "scale" in entry:
            factor = drawing.value(entry["scale"])
            parts[first:] = [(factor * triangles, *rest) for triangles, *rest in parts[first:]]
        top, size = (drawing.value(entry.get(key)) for key in ("top", "size"))
        return None if top is None else float(top), size


def _shape(item: Mapping[str, Any], drawing: _Drawing) -> Floats:
    """Make the triangles of one shape, or of several at once."""
    nothing = np.zeros((0, 3, 3))
    if "if" in item and not drawing.value(item["if"]):
        return nothing
    if "for" in item:
        values = [np.atleast_1d(drawing.value(node)) for node in item["for"].values()]
        rows = np.array(list(product(*values)), np.float64)
        if not len(rows):
            return nothing
        drawing.names.update(zip(item["for"], rows.T, strict=True))
        drawing.count = len(rows)
    (kind,) = item.keys() - _MODIFIERS
    arguments = [drawing.value(node) for node in item[kind]]
    made = leaves(drawing.rng, *arguments) if kind == "leaves" else SHAPES[kind](*arguments)
    if "turn" in item:
        axis, *turn = item["turn"]
        made = turned(made, axis, *(drawing.value(node) for node in turn))
    for axis in item.get("mirror", ""):
        made = np.concatenate([made, made])
        made[len(made) // 2 :, :, "xyz".index(axis)] *= -1
    if "move" in item:
        shift = np.atleast_2d(drawing.value(item["move"]))
        made = (made + shift[:, None, None]).reshape(-1, 3, 3)
    drawing.count = None
    return made


@cache
def _read(text: str) -> Callable[[_Drawing], Any]:
    """Read a value that is not a number."""
    if " | " in text:
        return _alternatives(text.split(" | "))
    if text.endswith(" %"):
        share = float(text[:-2]) / 100
        return lambda drawing: bool(drawing.rng.random() < share)
    if " .. " in text:
        whole = text.startswith("whole ")
        low, high = (_read(end) for end in text.removeprefix("whole ").split(" .. "))
        if whole:
            return lambda d: int(d.rng.integers(int(low(d)), int(high(d)) + 1))
        return lambda d: d.rng.uniform(low(d), high(d), d.count)
    if text.isidentifier() and text not in _FUNCTIONS:
        return lambda drawing: drawing.names.get(text, text)
    code, space = compile(text, "catalogue", "eval"), {"__builtins__": {}, **_FUNCTIONS}
    return lambda drawing: eval(code, space, drawing.names)


def _alternatives(options: Sequence[str]) -> Callable[[_Drawing], Any]:
    """Read alternatives and their shares; those without one share the rest evenly."""
    values, shares = [], []
    for option in options:
        word, _, share = option.removesuffix(" %").rpartition(" ")
        told = option.endswith(" %")
        values.append(_read(word if told else option))
        shares.append(float(share) / 100 if told else np.nan)
    chances = np.array(shares)
    untold = np.isnan(chances)
    chances[untold] = (1 - np.nansum(chances)) / max(untold.sum(), 1)
    bounds = np.cumsum(chances / chances.sum())[:-1]
    return lambda d: values[int(np.searchsorted(bounds, d.rng.random(), "right"))](d)
