"""Objects described in YAML: drawn numbers, and parts made of simple shapes.

    stool:
      class: chair
      draw: {height: 0.38 .. 0.46, seat: fabric 70 % | wood}
      parts:
        metal:
        - {tube: [[0.19, 0, 0], [0.1, 0, height], 0.014], mirror: x}
        seat:
        - cushion: [[0, 0, height], [0.36, 0.36, 0.06], 0.6]

An object has the keys

* `class`: its label; one that is `use`d takes the label of its user,
* `draw`: names and their values, drawn in this order; values that the caller gives are not drawn,
* `parts`: shapes by paint. A paint is a drawn name, or a name that is drawn once for its shapes,
* `use`: other objects with values for their names, or with a list of such values; they see the
  names of their user, too, and do not draw them,
* `one_of`: in place of all these, objects and their shares, of which one is made,
* `scale`: a factor on all of it; `top`: height at which small things may stand on it;
* `size`: width and depth that it takes, where they differ from those of its triangles.

A shape is the name of a function of `pcnn.simulate.shapes` with its arguments, and perhaps `if`,
`class`, `for` (names and several values each: one shape for each combination), `turn` (axis, angle,
point), `mirror` (`x`, `y` or `xy`: adds the mirrored shapes) and `move`, applied in this order.

A value is a number; `a .. b`, drawn evenly; `whole a .. b`, a drawn whole number, both ends
included; `30 %`, true by this chance; `this 30 % | that`, an alternative by chance, where shares
left out are evenly what remains; or an expression of numbers, names and `_FUNCTIONS`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from pcnn.files.text import read_yaml
from pcnn.simulate.mesh import Floats, Mesh, surface
from pcnn.simulate.shapes import RANDOM_SHAPES, SHAPES, turned

#: returns the number of a paint by its name, None for any other word
Paints = Callable[[str], int | None]

_FUNCTIONS: dict[str, Any] = {
    "abs": np.abs, "ceil": np.ceil, "cos": np.cos, "floor": np.floor, "max": np.maximum,
    "min": np.minimum, "round": np.round, "sin": np.sin, "pi": np.pi,
    "line": lambda a, b, count: np.linspace(a, b, max(int(count), 1)),  # evenly from a to b
    "row": lambda count, pitch: (np.arange(int(count)) - (int(count) - 1) / 2) * pitch,  # about 0
    "steps": np.arange,  # a, a + step, ... below b
}  # fmt: skip
_ALLOWED = (
    ast.Expression, ast.Constant, ast.Name, ast.Load, ast.Call, ast.BinOp, ast.UnaryOp, ast.Compare,
    ast.IfExp, ast.BoolOp, ast.boolop, ast.operator, ast.unaryop, ast.cmpop,
)  # fmt: skip
_MODIFIERS = {"if", "class", "for", "turn", "mirror", "move"}


@dataclass(frozen=True, eq=False)
class Thing:
    """An object that stands on z = 0 about the origin."""

    mesh: Mesh
    top: float | None = None  # [m] height at which small things may stand on it
    size: tuple[float, float] | None = None

    @cached_property
    def extent(self) -> Floats:
        """Half width [m] along x, half depth along y, both about the origin, and height."""
        if not len(self.mesh):
            return np.zeros(3)
        corners = self.mesh.triangles.reshape(-1, 3)
        return np.array([*np.abs(corners[:, :2]).max(0), corners[:, 2].max()])

    @property
    def width(self) -> float:
        """Extent along x [m]."""
        return float(2 * self.extent[0]) if self.size is None else self.size[0]

    @property
    def depth(self) -> float:
        """Extent along y [m]."""
        return float(2 * self.extent[1]) if self.size is None else self.size[1]

    @property
    def height(self) -> float:
        """Of the highest corner above z = 0 [m]."""
        return float(self.extent[2])


class Catalogue:
    """The objects of one YAML file."""

    def __init__(self, path: Path, labels: Mapping[str, int]) -> None:
        """Read the file."""
        self._entries: dict[str, dict[str, Any]] = read_yaml(path)
        self._labels = labels
        self._read: dict[str, _Object] = {}

    @property
    def names(self) -> list[str]:
        """Names of all objects."""
        return list(self._entries)

    def make(self, rng: np.random.Generator, paints: Paints, name: str, **given: Any) -> Thing:
        """Make an object."""
        parts: list[_Painted] = []
        top, size = self._make(parts, rng, paints, name, given, None)
        counts = [len(triangles) for triangles, _, _ in parts]
        mesh = surface(
            np.concatenate([np.zeros((0, 3, 3)), *(triangles for triangles, _, _ in parts)]),
            np.repeat([paint for _, paint, _ in parts], counts),
            np.repeat([label for _, _, label in parts], counts),
        )
        return Thing(mesh, top, None if size is None else (float(size[0]), float(size[1])))

    def _make(
        self,
        parts: list[_Painted],
        rng: np.random.Generator,
        paints: Paints,
        name: str,
        given: Mapping[str, Any],
        label: int | None,
    ) -> tuple[float | None, Floats | None]:
        """Add the parts of an object to a list; return its top and its size."""
        if name not in self._read:
            self._read[name] = _Object(self._entries[name], self._labels)
        this = self._read[name]
        if this.names:
            chosen = this.names[int(rng.choice(len(this.names), p=this.shares))]
            return self._make(parts, rng, paints, chosen, given, label)
        label = this.label if label is None else label
        drawing = _Drawing(rng, paints, dict(given))
        for key, value in this.draw.items():
            if key not in given:
                drawing.names[key] = drawing.paint(value(drawing))
        first = len(parts)
        for used, values in this.use:
            names = drawing.names | {key: value(drawing) for key, value in values.items()}
            self._make(parts, rng, paints, used, names, label)
        for paint, shapes in this.parts.items():
            number = drawing.names.get(paint, paint)
            for shape in shapes:
                triangles = shape.make(drawing)
                if len(triangles):
                    number = drawing.paint(number)
                    own = label if shape.label is None else shape.label
                    parts.append((triangles, number, own or 0))
        if this.scale is not None:
            factor = this.scale(drawing)
            parts[first:] = [(factor * triangles, *rest) for triangles, *rest in parts[first:]]
        return (
            None if this.top is None else float(this.top(drawing)),
            None if this.size is None else this.size(drawing),
        )


_Painted = tuple[Floats, int, int]  # triangles, paint, label


@dataclass(eq=False)
class _Drawing:
    """The names of one object while it is made."""

    rng: np.random.Generator
    paints: Paints
    names: dict[str, Any]
    count: int | None = None  # of the shapes that are made at once

    def paint(self, value: Any) -> Any:
        """Return the number of a paint if the value is its name, else the value."""
        number = self.paints(value) if isinstance(value, str) else None
        return value if number is None else number


_Value = Callable[[_Drawing], Any]


class _Object:
    """One entry of a catalogue, its values read."""

    def __init__(self, entry: Mapping[str, Any], labels: Mapping[str, int]) -> None:
        one_of = entry.get("one_of", {})
        self.names = list(one_of)
        self.shares = np.array(list(one_of.values())) / max(sum(one_of.values()), 1)
        self.label = labels[entry["class"]] if "class" in entry else None
        self.draw = {key: _read(node) for key, node in entry.get("draw", {}).items()}
        self.use = [
            (name, {key: _read(node) for key, node in values.items()})
            for name, each in entry.get("use", {}).items()
            for values in (each if isinstance(each, list) else [each])
        ]
        self.parts = {
            paint: [_Shape(item, labels) for item in items]
            for paint, items in entry.get("parts", {}).items()
        }
        self.scale, self.top, self.size = (
            _read(entry[key]) if key in entry else None for key in ("scale", "top", "size")
        )


class _Shape:
    """One shape of an entry, its values read."""

    def __init__(self, item: Mapping[str, Any], labels: Mapping[str, int]) -> None:
        (self.kind,) = item.keys() - _MODIFIERS
        self.arguments = [_read(node) for node in item[self.kind]]
        self.label = labels[item["class"]] if "class" in item else None
        self.condition = _read(item["if"]) if "if" in item else None
        self.loops = {key: _read(node) for key, node in item.get("for", {}).items()}
        self.axis, *turn = item.get("turn", [""])
        self.turn = [_read(node) for node in turn]
        self.mirror = ["xyz".index(axis) for axis in item.get("mirror", "")]
        self.move = _read(item["move"]) if "move" in item else None

    def make(self, drawing: _Drawing) -> Floats:
        """Make its triangles."""
        nothing = np.zeros((0, 3, 3))
        if self.condition is not None and not self.condition(drawing):
            return nothing
        if self.loops:
            values = [np.atleast_1d(value(drawing)) for value in self.loops.values()]
            rows = np.array(list(product(*values)), np.float64)
            if not len(rows):
                return nothing
            drawing.names.update(zip(self.loops, rows.T, strict=True))
            drawing.count = len(rows)
        arguments = [value(drawing) for value in self.arguments]
        if self.kind in SHAPES:
            made = SHAPES[self.kind](*arguments)
        else:
            made = RANDOM_SHAPES[self.kind](drawing.rng, *arguments)
        if self.turn:
            made = turned(made, self.axis, *(value(drawing) for value in self.turn))
        for axis in self.mirror:
            made = np.concatenate([made, made])
            made[len(made) // 2 :, :, axis] *= -1
        if self.move is not None:
            shift = np.atleast_2d(self.move(drawing))
            made = (made + shift[:, None, None]).reshape(-1, 3, 3)
        drawing.count = None
        return made


def _read(node: Any) -> _Value:
    """Read a value, or a list of values."""
    if isinstance(node, str):
        return _read_text(node)
    if not isinstance(node, list):
        return lambda drawing: node
    parts, points = [_read(part) for part in node], any(isinstance(part, list) for part in node)

    def array(drawing: _Drawing) -> Floats:
        values = [part(drawing) for part in parts]
        if not any(isinstance(value, np.ndarray) and value.ndim for value in values) or points:
            return np.array(values, np.float64)
        return np.stack(np.broadcast_arrays(*values), -1)  # several points

    return array


@cache
def _read_text(text: str) -> _Value:
    """Read a value that is not a number."""
    if " | " in text:
        return _alternatives(text.split(" | "))
    if text.endswith(" %"):
        share = float(text[:-2]) / 100
        return lambda drawing: bool(drawing.rng.random() < share)
    if " .. " in text:
        whole = text.startswith("whole ")
        low, high = (_read_text(end) for end in text.removeprefix("whole ").split(" .. "))
        if whole:
            return lambda d: int(d.rng.integers(int(low(d)), int(high(d)) + 1))
        return lambda d: d.rng.uniform(low(d), high(d), d.count)
    if text.isidentifier() and text not in _FUNCTIONS:
        return lambda drawing: drawing.names.get(text, text)
    tree = ast.parse(text, mode="eval")
    for node in ast.walk(tree):
        if not isinstance(node, _ALLOWED):
            raise ValueError(f"{text!r}: a value is an expression of numbers and names")
    code = compile(tree, text, "eval")
    space = {"__builtins__": {}, **_FUNCTIONS}
    return lambda drawing: eval(code, space, drawing.names)


def _alternatives(options: Sequence[str]) -> _Value:
    """Read alternatives and their shares; those without one share the rest evenly."""
    values, shares = [], []
    for option in options:
        word, _, share = option.removesuffix(" %").rpartition(" ")
        told = option.endswith(" %")
        values.append(_read_text(word if told else option))
        shares.append(float(share) / 100 if told else np.nan)
    chances = np.array(shares)
    untold = np.isnan(chances)
    chances[untold] = (1 - np.nansum(chances)) / max(untold.sum(), 1)
    bounds = np.cumsum(chances / chances.sum())[:-1]
    return lambda d: values[int(np.searchsorted(bounds, d.rng.random(), "right"))](d)
