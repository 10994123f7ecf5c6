"""Labels of points: their classes, and the labels that classes have in files.

A network knows train ids: 0..C-1 for the classes, ``IGNORE`` for points that do not count. Files
hold raw ids; a `LabelMap` translates. The classes of a user's own clouds come from a YAML file.
"""

from __future__ import annotations

import colorsys
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pcnn.errors import FileError, MissingFileError
from pcnn.files.bounded import named
from pcnn.files.text import read_yaml

if TYPE_CHECKING:
    from torch import Tensor

IGNORE = 255
"""Train id of a point that counts neither in a loss nor in a metric."""

Rgb = tuple[int, int, int]

#: Raw ids below this are translated by a table of them.
_LONG = 1 << 16


@dataclass(frozen=True)
class LabelMap:
    """Translation between the raw ids of a data set and train ids 0..C-1."""

    class_names: tuple[str, ...]  # names in the order of the train ids
    colors: tuple[Rgb, ...]  # RGB in 0..255, one for each class
    raw_to_train: Mapping[int, int]  # train id, or IGNORE, of every raw id that may occur
    train_to_raw: tuple[int, ...]  # raw id written for each class in a prediction
    ignored_raw: int = 0  # raw id written where there is no class

    @property
    def num_classes(self) -> int:
        """Number of classes C."""
        return len(self.class_names)

    @cached_property
    def _known(self) -> tuple[np.ndarray, np.ndarray]:
        """Raw ids [R] int64 in rising order, and their train ids."""
        raw = np.array(sorted(self.raw_to_train), dtype=np.int64)
        return raw, np.array([self.raw_to_train[i] for i in raw.tolist()], dtype=np.int64)

    @cached_property
    def _table(self) -> np.ndarray | None:
        """Train id of every raw id, -1 of others and at the end; None where that is long."""
        raw, train = self._known
        if not len(raw) or raw[0] < 0 or raw[-1] >= _LONG:
            return None
        table = np.full(raw[-1] + 2, -1, dtype=np.int64)
        table[raw] = train
        return table

    def _encoded(self, wide: np.ndarray) -> np.ndarray:
        """Train ids of raw ids [P] int64; -1 of ids that the map does not know."""
        table = self._table
        if table is not None:  # a third of the time of a search
            return table.take(np.clip(wide, -1, len(table) - 1), mode="wrap")
        ids, classes = self._known
        rows = np.searchsorted(ids, wide).clip(max=len(ids) - 1)
        return np.where(ids[rows] == wide, classes[rows], -1)

    def encode(self, raw: np.ndarray, origin: str) -> np.ndarray:
        """Translate raw ids into train ids."""
        found = self._encoded(raw.astype(np.int64))
        strange = found < 0
        if strange.any():
            ids = self._known[0]
            unknown, counts = np.unique(raw[strange], return_counts=True)
            raise FileError(
                origin,
                f"raw label {int(unknown[0])} ({int(counts[0])} points"
                f"{f', and {len(unknown) - 1} more ids' if len(unknown) > 1 else ''}) is not in "
                f"the label map; known ids: {', '.join(map(str, ids[:200].tolist()))}",
            )
        return found

    def decode(self, train: np.ndarray) -> np.ndarray:
        """Translate train ids into the raw ids of a prediction file,
        ``IGNORE`` into `ignored_raw`.
        """
        train = np.asarray(train)
        known = (train >= 0) & (train < self.num_classes)
        if not (known | (train == IGNORE)).all():
            raise ValueError(
                f"train ids must lie in 0..{self.num_classes - 1} or be {IGNORE}, got "
                f"{int(train[~(known | (train == IGNORE))][0])}"
            )
        raw = np.array([*self.train_to_raw, self.ignored_raw])
        table = raw.astype(np.uint32 if raw.min() >= 0 and raw.max() < 1 << 32 else np.int64)
        return table[np.where(known, train, self.num_classes)]


def check_labels(labels: Tensor) -> None:
    """Refuse labels ([P] int64) that are neither train ids nor ``IGNORE``."""
    if not labels.numel():
        return
    low, high = map(int, labels.aminmax())
    if not 0 <= low <= high <= IGNORE:
        raise ValueError(f"labels must be train ids 0..254 or {IGNORE}, got {low}..{high}")


_KEYS = ("names", "colors", "map", "ignore")


def read_classes(source: str | Path | Mapping[str, Any]) -> LabelMap:
    """Read a class file, or what it holds.

    * ``names``: the classes, in the order of the network's outputs.
    * ``colors``: one [red, green, blue] in 0..255 a class; left out, hues are spread evenly.
    * ``map``: class name of every label that occurs in the files. A prediction is written as the
      first label of its class. Left out, the labels are 0, 1, 2, ... in the order of the names.
    * ``ignore``: labels that count nowhere; the first is written where a prediction has no class.
      Left out, that is 255.
    """
    content, origin = (source, "classes") if isinstance(source, Mapping) else _load(Path(source))
    with named(origin, "class file"):
        return _classes(content, origin)


def _classes(content: Mapping[str, Any], origin: str) -> LabelMap:
    unknown = [str(key) for key in content if key not in _KEYS]
    if unknown:
        raise ValueError(f"{origin}: unknown key {unknown[0][:80]}; there are {', '.join(_KEYS)}")
    names: Any = content.get("names")
    if not _is_list(names) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{origin}: names must be a list of class names")
    if not 1 <= len(names) < IGNORE or len(set(names)) < len(names):
        raise ValueError(f"{origin}: names must hold 1 to {IGNORE - 1} different names")
    colors = colors_of(content.get("colors"), len(names), origin)
    ignored: Any = content.get("ignore", [IGNORE])
    ignored = [ignored] if isinstance(ignored, int) else ignored
    if not _is_list(ignored) or not ignored or not all(_is_int(label) for label in ignored):
        raise ValueError(f"{origin}: ignore must be a list of labels, whole numbers")
    classes = _labels(content.get("map"), names, origin)
    both = [label for label in ignored if label in classes]
    if both:
        raise ValueError(f"{origin}: label {both[0]} is both in map and in ignore")
    first = [next(raw for raw, at in classes.items() if at == c) for c in range(len(names))]
    to_train = classes | dict.fromkeys(ignored, IGNORE)
    return LabelMap(tuple(names), colors, to_train, tuple(first), ignored[0])


def contents(labels: LabelMap) -> dict[str, Any]:
    """Return the content of a class file that `read_classes` makes this map of."""
    ignored = [raw for raw, train in labels.raw_to_train.items() if train == IGNORE]
    classes = {raw: train for raw, train in labels.raw_to_train.items() if train != IGNORE}
    return {
        "names": list(labels.class_names),
        "colors": [list(color) for color in labels.colors],
        # checkpoints hold mappings of text alone
        "map": {str(raw): labels.class_names[train] for raw, train in classes.items()},
        "ignore": ignored,
    }


def colors_of(colors: Sequence[Sequence[float]] | None, n: int, origin: str) -> tuple[Rgb, ...]:
    """Check the colours of n classes; None gives evenly spread hues."""
    if colors is None:
        hues = [colorsys.hsv_to_rgb(i / n, 0.8, 0.9) for i in range(n)]
        colors = [[255 * part for part in hue] for hue in hues]
    if not _is_list(colors) or len(colors) != n:
        found = len(colors) if _is_list(colors) else "no list of"
        raise ValueError(f"{origin}: {found} colors for {n} classes")
    return tuple(_rgb(color, origin) for color in colors)


def _rgb(color: Any, origin: str) -> Rgb:
    numbers = _is_list(color) and all(isinstance(part, (int, float)) for part in color)
    if not numbers or len(color) != 3 or not all(0 <= part <= 255 for part in color):
        raise ValueError(
            f"{origin}: a color is [red, green, blue] in 0..255, got {str(color)[:80]}"
        )
    red, green, blue = (round(part) for part in color)
    return red, green, blue


def _labels(table: Any, names: Sequence[str], origin: str) -> dict[int, int]:
    """Class of every label, in the order of the file."""
    if table is None:
        return {label: label for label in range(len(names))}
    if isinstance(table, Mapping):
        table = {_number(label): name for label, name in table.items()}
    if not isinstance(table, Mapping) or not all(_is_int(label) for label in table):
        raise ValueError(f"{origin}: map must give a class name for labels, as 2: ground")
    strange = [label for label, name in table.items() if name not in names]
    if strange:
        raise ValueError(
            f"{origin}: map gives label {strange[0]} to {str(table[strange[0]])[:80]!r}, which is "
            f"not among the names {', '.join(names)}"
        )
    missing = [name for name in names if name not in table.values()]
    if missing:
        raise ValueError(f"{origin}: map has no label for {', '.join(missing)}")
    return {label: list(names).index(name) for label, name in table.items()}


def _load(path: Path) -> tuple[Mapping[str, Any], str]:
    if not path.is_file():
        raise MissingFileError(path, "no such class file (names, colors, map, ignore)")
    content = read_yaml(path)
    if not isinstance(content, dict):
        raise FileError(path, f"a class file is a mapping with {', '.join(_KEYS)}")
    return {str(key): value for key, value in content.items()}, str(path)


def _number(label: Any) -> Any:
    """A label written as text as the number it is."""
    whole = isinstance(label, str) and re.fullmatch(r"-?\d{1,18}", label, re.ASCII)
    return int(label) if whole else label


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _is_int(value: Any) -> bool:
    """True for a label, a whole number of 64 bits."""
    return type(value) is int and -(1 << 63) <= value < 1 << 63
