"""Where the labels of a cloud may lie: beside it, or in a folder of labels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

#: Names of folders that hold labels, beside a folder of clouds.
FOLDERS = ("labels", "label")

# beside the cloud, beside its folder, beside the folder above that
_LEVELS = 3


def label_files(path: Path) -> list[Path]:
    """Return the files that label a cloud; more than one is a mistake of the set.

    * beside it: ``NAME.label``, ``NAME_label.npy``;
    * in a folder ``labels`` (``label``) that takes the place of a folder of the clouds, or lies
      beside the cloud: ``velodyne/NAME.bin`` with ``labels/NAME.label``, ``points/a/NAME.ply`` with
      ``labels/a/NAME.npy``, ``NAME.bin`` with ``labels/NAME.label``. There ``NAME.npy`` is a name
      of labels, too.

    Args:
        path: the cloud.
    """
    return [place for place in _places(path) if place != path and place.is_file()]


def without_label_files(paths: Iterable[Path]) -> list[Path]:
    """Return the paths without those that label another of them (``labels/NAME.npy``)."""
    paths = list(paths)
    # clouds and labels share no other suffix
    if not any(path.suffix == ".npy" and _in_label_folder(path) for path in paths):
        return paths
    labels = {place for path in paths for place in _places(path) if place != path}
    return [path for path in paths if path not in labels]


def _places(path: Path) -> Iterator[Path]:
    yield path.with_suffix(".label")
    yield path.with_name(f"{path.stem}_label.npy")
    for depth in range(_LEVELS):
        # the cloud's path, cut in front of its last `depth` folders: what is above, and below
        if depth >= len(path.parts) - 1:
            return
        above = path.parents[depth]
        below = path.relative_to(above).parts[1:] if depth else (path.name,)
        for name in FOLDERS:
            place = above.joinpath(name, *below)
            yield place.with_suffix(".label")
            yield place.with_name(f"{path.stem}_label.npy")
            yield place.with_suffix(".npy")


def _in_label_folder(path: Path) -> bool:
    return any(part in FOLDERS for part in path.parts[:-1])
