"""The SemanticKITTI classes: raw ids in the files, train ids in the network.

Ids, merges, order and colours are those of the data set's own configuration
(semantic-kitti-api, ``config/semantic-kitti.yaml``), with train ids shifted by one so that the
19 classes are 0..18 and everything unlabelled is ``IGNORE``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from torch import Tensor

from pcnn.errors import FileError

IGNORE = 255
"""Train id of a point that counts neither in a loss nor in a metric."""

Rgb = tuple[int, int, int]

# name, raw id written for a prediction, further raw ids merged into the class, colour
_CLASSES: tuple[tuple[str, int, tuple[int, ...], Rgb], ...] = (
    ("car", 10, (252,), (100, 150, 245)),
    ("bicycle", 11, (), (100, 230, 245)),
    ("motorcycle", 15, (), (30, 60, 150)),
    ("truck", 18, (258,), (80, 30, 180)),
    ("other-vehicle", 20, (13, 16, 256, 257, 259), (0, 0, 255)),
    ("person", 30, (254,), (255, 30, 30)),
    ("bicyclist", 31, (253,), (255, 40, 200)),
    ("motorcyclist", 32, (255,), (150, 30, 90)),
    ("road", 40, (60,), (255, 0, 255)),
    ("parking", 44, (), (255, 150, 255)),
    ("sidewalk", 48, (), (75, 0, 75)),
    ("other-ground", 49, (), (175, 0, 75)),
    ("building", 50, (), (255, 200, 0)),
    ("fence", 51, (), (255, 120, 50)),
    ("vegetation", 70, (), (0, 175, 0)),
    ("trunk", 71, (), (135, 60, 0)),
    ("terrain", 72, (), (150, 240, 80)),
    ("pole", 80, (), (255, 240, 150)),
    ("traffic-sign", 81, (), (255, 0, 0)),
)
# unlabeled, outlier, other-structure, other-object
_IGNORED_IDS = (0, 1, 52, 99)
# bus, on-rails, lane-marking, moving-on-rails, moving-bus: merged officially, ignored by spvnas
_SPVNAS_IGNORED_IDS = (13, 16, 60, 256, 257)


@dataclass(frozen=True)
class LabelMap:
    """Translation between the raw ids of a data set and train ids 0..C-1.

    Args:
        class_names: names in the order of the train ids.
        colors: RGB in 0..255, one for each class.
        raw_to_train: train id, or ``IGNORE``, of every raw id that may occur.
        train_to_raw: raw id written for each class in a prediction.
        ignored_raw: raw id written where there is no class.
    """

    class_names: tuple[str, ...]
    colors: tuple[Rgb, ...]
    raw_to_train: Mapping[int, int]
    train_to_raw: tuple[int, ...]
    ignored_raw: int = 0

    @property
    def num_classes(self) -> int:
        """Number of classes C."""
        return len(self.class_names)

    @cached_property
    def _known(self) -> tuple[np.ndarray, np.ndarray]:
        """Raw ids [R] int64 in rising order, and their train ids."""
        raw = np.array(sorted(self.raw_to_train), dtype=np.int64)
        return raw, np.array([self.raw_to_train[i] for i in raw.tolist()], dtype=np.int64)

    def encode(self, raw: np.ndarray, origin: str) -> np.ndarray:
        """Translate raw ids into train ids.

        Args:
            raw: [P] integers.
            origin: where the ids come from (a file), for the error.

        Returns:
            [P] int64, 0..C-1 or ``IGNORE``.

        Raises:
            FileError: an id that the map does not know.
        """
        ids, classes = self._known
        wide = raw.astype(np.int64)
        rows = np.searchsorted(ids, wide).clip(max=len(ids) - 1)
        strange = ids[rows] != wide
        if strange.any():
            unknown, counts = np.unique(raw[strange], return_counts=True)
            raise FileError(
                origin,
                f"raw label {int(unknown[0])} ({int(counts[0])} points"
                f"{f', and {len(unknown) - 1} more ids' if len(unknown) > 1 else ''}) is not in "
                f"the label map; known ids: {', '.join(map(str, ids[:200].tolist()))}",
            )
        return classes[rows]

    def decode(self, train: np.ndarray) -> np.ndarray:
        """Translate train ids into the raw ids of a prediction file, ``IGNORE`` into `ignored_raw`.

        Args:
            train: [P] integers, 0..C-1 or ``IGNORE``.

        Returns:
            [P] uint32, or int64 where a raw id does not fit.

        Raises:
            ValueError: an id that is neither a class nor ``IGNORE``.
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


def _semantic_kitti(ignored: tuple[int, ...]) -> LabelMap:
    to_train = dict.fromkeys((*_IGNORED_IDS, *ignored), IGNORE)
    for train, (_, raw, merged, _) in enumerate(_CLASSES):
        to_train.update({i: train for i in (raw, *merged) if i not in ignored})
    return LabelMap(
        tuple(name for name, *_ in _CLASSES),
        tuple(color for *_, color in _CLASSES),
        to_train,
        tuple(raw for _, raw, *_ in _CLASSES),
    )


SEMANTIC_KITTI = _semantic_kitti(())
SPVNAS_COMPAT = _semantic_kitti(_SPVNAS_IGNORED_IDS)
LABEL_MAPS = {"official": SEMANTIC_KITTI, "spvnas_compat": SPVNAS_COMPAT}


def label_map(name: str) -> LabelMap:
    """Return a SemanticKITTI label map by name.

    ``official`` is the data set's own. ``spvnas_compat`` ignores bus, on-rails, lane-marking and
    their moving kin instead of merging them, as the spvnas code does; its numbers are not
    comparable with official ones.

    Raises:
        ValueError: an unknown name.
    """
    if name not in LABEL_MAPS:
        raise ValueError(f"labels must be one of {', '.join(LABEL_MAPS)}, got {name!r}")
    return LABEL_MAPS[name]


def check_labels(labels: Tensor) -> None:
    """Refuse labels ([P] int64) that are neither train ids nor ``IGNORE``.

    Raises:
        ValueError: a label out of 0..255.
    """
    if labels.numel() and not 0 <= int(labels.min()) <= int(labels.max()) <= IGNORE:
        raise ValueError(
            f"labels must be train ids 0..254 or {IGNORE}, got {int(labels.min())}.."
            f"{int(labels.max())}"
        )
