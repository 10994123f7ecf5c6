"""Classes of SemanticKITTI: their names and colours, and the ids in its files."""

from __future__ import annotations

from pcnn.datasets.labels import IGNORE, LabelMap, Rgb

# Source: semantic-kitti-api, config/semantic-kitti.yaml; train ids are shifted by one here, so that
# the 19 classes are 0..18 and everything unlabelled is IGNORE
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


def _semantic_kitti() -> LabelMap:
    to_train = dict.fromkeys(_IGNORED_IDS, IGNORE)
    for train, (_, raw, merged, _) in enumerate(_CLASSES):
        to_train.update(dict.fromkeys((raw, *merged), train))
    return LabelMap(
        tuple(name for name, *_ in _CLASSES),
        tuple(color for *_, color in _CLASSES),
        to_train,
        tuple(raw for _, raw, *_ in _CLASSES),
    )


SEMANTIC_KITTI = _semantic_kitti()
