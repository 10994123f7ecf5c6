"""Which numbers of a file become the channels of a cloud, and where its origin lies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

INTENSITY = ("intensity", "remission", "reflectance", "scalar_intensity", "scalar_Intensity")
COLORS = ("red", "green", "blue")

#: Coordinates beyond this [m] are those of a map: float32 would keep them to half a millimetre.
_FAR = 1e4


@dataclass(frozen=True)
class Reading:
    """What of a file is read, and how.

    Args:
        channels: names of the properties that become channels, in order; ``intensity`` stands for
            whatever a format calls it. None: intensity, then red, green and blue, as far as the
            file has them.
        intensity_max: the number in the files that becomes intensity 1; None: 65535 in LAS files,
            1 in others.
        centred: put the origin of LAS and LAZ clouds, and of others whose coordinates lie farther
            than 10 km from zero, into the middle of the cloud; False keeps the file's.

    Raises:
        ValueError: a name that occurs twice, or an ``intensity_max`` that is not positive.
    """

    channels: tuple[str, ...] | None = None
    intensity_max: float | None = None
    centred: bool = False

    def __post_init__(self) -> None:
        if self.channels is not None and len(set(self.channels)) < len(self.channels):
            raise ValueError(f"channels must differ, got {', '.join(self.channels)}")
        if self.intensity_max is not None and not self.intensity_max > 0:
            raise ValueError(f"intensity_max must be positive, got {self.intensity_max}")

    def columns(
        self,
        path: Path,
        names: Sequence[str],
        get: Callable[[str], np.ndarray],
        points: int,
        usual_max: float = 1.0,
    ) -> np.ndarray:
        """Channels of the points of a file whose properties have names.

        Colours that are integers are divided by their type's largest value.

        Args:
            path: the file, for errors.
            names: of the properties it has.
            get: values [P] of a property.
            points: P.
            usual_max: the format's own ``intensity_max``.

        Returns:
            [P, F] float32.

        Raises:
            ValueError: a channel that the file does not have.
        """
        columns = [np.empty((points, 0), dtype=np.float32)]
        for name in self._wanted(path, names):
            values = np.asarray(get(name))
            if name in COLORS and np.issubdtype(values.dtype, np.integer):
                values = values.astype(np.float32) / np.iinfo(values.dtype).max
            elif name in INTENSITY:
                top = self.intensity_max or usual_max
                values = values.astype(np.float32) / (np.float32(top) if top != 1.0 else 1)
            columns.append(values.astype(np.float32)[:, None])
        return np.concatenate(columns, axis=1)

    def origin(self, points: np.ndarray, in_map: bool) -> np.ndarray:
        """Where the origin of a cloud is put, in the coordinates of its file.

        Args:
            points: [P, 3] finite numbers [m].
            in_map: the format's coordinates are those of a map.

        Returns:
            [3] float64, whole metres: the middle of the box along x and y, the median of z; zero
            where the origin stays.
        """
        if not self.centred or not len(points):
            return np.zeros(3)
        if not in_map and np.abs(points).max() <= _FAR:
            return np.zeros(3)
        middle = (points.min(axis=0) + points.max(axis=0)) / 2
        middle[2] = np.median(points[:, 2])  # a bird or a stray echo moves the middle of heights
        return np.round(middle)

    def _wanted(self, path: Path, names: Sequence[str]) -> list[str]:
        intensity = [name for name in INTENSITY if name in names][:1]
        if self.channels is None:
            return intensity + (list(COLORS) if set(COLORS) <= set(names) else [])
        found = [intensity[0] if n == "intensity" and intensity else n for n in self.channels]
        for name in found:
            if name not in names:
                raise ValueError(f"{path}: no channel {name!r}; the file has {', '.join(names)}")
        return found
