"""Labels of points: their classes, and the labels that classes have in files.

A network knows train ids: 0..C-1 for the classes, ``IGNORE`` for points that do not count. Files
hold raw ids; a `LabelMap` translates. The classes of a user's own clouds come from a YAML file.
"""

from __future__ import annotations

import colorsys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from annotated_types import Interval, Len, MinLen

from pcnn.config.values import refusal
from pcnn.errors import FileError, MissingFileError
from pcnn.files.bounded import named, read_yaml

IGNORE = 255
"""Train id of a point that counts neither in a loss nor in a metric."""

Rgb = tuple[int, int, int]


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
        return len(self.class_names)

    @cached_property
    def _table(self) -> tuple[int, np.ndarray]:
        """The first of raw ids in a row, and the train ids of all; -1 of those that may not occur.

        The first and the last may not.
        """
        first = min(self.raw_to_train) - 1
        table = np.full(max(self.raw_to_train) - first + 2, -1, dtype=np.int64)
        for raw, train in self.raw_to_train.items():
            table[raw - first] = train
        return first, table

    def encode(self, raw: np.ndarray, origin: str) -> np.ndarray:
        first, table = self._table
        found = table.take(raw.astype(np.int64) - first, mode="clip")
        strange = found < 0
        if strange.any():
            unknown, counts = np.unique(raw[strange], return_counts=True)
            known = ", ".join(map(str, sorted(self.raw_to_train)[:200]))
            told = f"raw label {int(unknown[0])} ({int(counts[0])} points) is none of {known}"
            raise FileError(origin, told)
        return found

    def decode(self, train: np.ndarray) -> np.ndarray:
        """Translate train ids into raw ids of a prediction file, ``IGNORE`` into `ignored_raw`."""
        train = np.asarray(train)
        known = (train >= 0) & (train < self.num_classes)
        if not (known | (train == IGNORE)).all():
            wrong = int(train[~(known | (train == IGNORE))][0])
            raise ValueError(f"train ids lie in 0..{self.num_classes - 1} or are {IGNORE}: {wrong}")
        raw = np.array([*self.train_to_raw, self.ignored_raw])
        table = raw.astype(np.uint32 if raw.min() >= 0 else np.int64)
        return table[np.where(known, train, self.num_classes)]


_Class = Annotated[int, Interval(gt=-(1 << 16), lt=1 << 16)]  # a label in a file
_Byte = Annotated[float, Interval(ge=0, le=255)]
_KEYS: Mapping[str, Any] = {
    "names": Annotated[list[str], Len(1, IGNORE - 1)],
    "colors": list[tuple[_Byte, _Byte, _Byte]] | None,
    "map": dict[_Class, str] | None,
    "ignore": _Class | Annotated[list[_Class], MinLen(1)] | None,
}


def read_classes(source: str | Path | Mapping[str, Any]) -> LabelMap:
    """Read a class file, or what it holds.

    * ``names``: the classes, in the order of the network's outputs.
    * ``colors``: one [red, green, blue] in 0..255 a class; left out, hues are spread evenly.
    * ``map``: class name of every label that occurs in the files. A prediction is written as the
      first label of its class. Left out, the labels are 0, 1, 2, ... in the order of the names.
    * ``ignore``: labels that count nowhere; the first is written where a prediction has no class.
      Left out, that is 255.
    """
    if isinstance(source, Mapping):
        content, origin = source, "classes"
    else:
        origin = str(source)
        if not Path(source).is_file():
            raise MissingFileError(source, "no such class file (names, colors, map, ignore)")
        content = read_yaml(Path(source))
    with named(origin, "class file"):
        if not isinstance(content, Mapping):
            raise ValueError(f"a class file is a mapping with {', '.join(_KEYS)}")
        return _classes(content)


def _classes(content: Mapping[Any, Any]) -> LabelMap:
    for key in ["names", *content]:
        if key not in _KEYS:
            raise ValueError(f"unknown key {str(key)[:80]}; there are {', '.join(_KEYS)}")
        rule = refusal(content.get(key), _KEYS[key])
        if rule is not None:
            raise ValueError(f"{key}: {str(content.get(key))[:80]} is not valid: {rule}")
    names, colors, table = content["names"], content.get("colors"), content.get("map")
    if len(set(names)) < len(names):
        raise ValueError("names: they must differ")
    if colors is None:
        hues = [colorsys.hsv_to_rgb(i / len(names), 0.8, 0.9) for i in range(len(names))]
        colors = [[255 * part for part in hue] for hue in hues]
    if len(colors) != len(names):
        raise ValueError(f"colors: {len(colors)} for {len(names)} classes")
    named_labels = {int(label): name for label, name in (table or {}).items()}
    if table is None:
        named_labels = dict(enumerate(names))
    for label, name in named_labels.items():
        if name not in names:
            raise ValueError(f"map: label {label} is {name[:80]!r}, none of {', '.join(names)}")
    ignored = content.get("ignore")
    ignored = [IGNORE] if ignored is None else [ignored] if isinstance(ignored, int) else ignored
    both = named_labels.keys() & set(ignored)
    if both:
        raise ValueError(f"ignore: label {min(both)} is in map, too")
    first = {name: label for label, name in reversed(named_labels.items())}
    missing = [name for name in names if name not in first]
    if missing:
        raise ValueError(f"map: no label for {', '.join(missing)}")
    train = {label: names.index(name) for label, name in named_labels.items()}
    return LabelMap(
        tuple(names),
        tuple((round(red), round(green), round(blue)) for red, green, blue in colors),
        train | dict.fromkeys(ignored, IGNORE),
        tuple(first[name] for name in names),
        ignored[0],
    )


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
