"""LAS and LAZ files of airborne, mobile and terrestrial scanners, through laspy.

Source: LAS specification 1.4 R15 (ASPRS, 2019).
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np

from pcnn.datasets.file_error import CloudFileError
from pcnn.datasets.point_table import COLORS
from pcnn.datasets.whole_file import whole_file
from pcnn.errors import MissingPackageError
from pcnn.extras import install

SUFFIXES = (".las", ".laz")

#: Largest intensity and colour: both are normalised to 16 bits.
FULL = 65535.0

#: Point formats 0-5 keep classes in 5 bits; what serves in their place, with 8 bits.
_EXTENDED = {0: 6, 1: 6, 2: 7, 3: 7, 4: 9, 5: 10}

#: Unit of scan angles in the formats with 8 bits [deg]; in the others it is one degree.
_ANGLE = 0.006


def read_las(path: Path) -> Any:
    """Read all points of a file.

    Returns:
        A `laspy.LasData`.

    Raises:
        MissingPackageError: laspy, or for LAZ lazrs, is not installed.
        CloudFileError: no LAS file, or a truncated one.
    """
    laspy = _laspy(path)
    try:
        las = laspy.read(path, laz_backend=_backend(laspy))
    except (laspy.errors.LaspyException, OSError, ValueError, RuntimeError, struct.error) as error:
        # lazrs raises a RuntimeError of its own
        raise CloudFileError(path, f"not a whole LAS file ({error})") from error
    announced = las.header.point_count
    if len(las.points) != announced:  # a file cut between two points
        raise CloudFileError(
            path,
            f"truncated: the header announces {announced} points, the file holds {len(las.points)}",
        )
    return las


def property_of(las: Any, name: str) -> np.ndarray:
    """Values [P] of a property ("dimension") of the points; colours in 0..1.

    Colours are normalised to 16 bits; where none of a file exceeds 255 they are taken for 8 bits,
    which many programs write.
    """
    if name not in COLORS:
        return np.asarray(las[name])
    top = max((int(np.asarray(las[c]).max()) for c in COLORS if len(las.points)), default=0)
    return np.asarray(las[name]).astype(np.float32) / (255.0 if top <= 255 else FULL)


def properties(las: Any) -> tuple[str, ...]:
    """Names of the properties of the points."""
    return tuple(las.point_format.dimension_names)


def write_las_labels(path: Path, source: Path, labels: np.ndarray) -> None:
    """Write a copy of a file with other classes, whole or not at all.

    Everything else of the points and of the header stays. Where the classes need more than the 5
    bits of point formats 0-5, the format with 8 bits takes their place.

    Args:
        path: the file; its suffix says whether it is compressed.
        source: the file to copy.
        labels: [P] integers in 0..255.

    Raises:
        MissingPackageError: as `read_las`.
        ValueError: as `read_las`, or labels that do not fit.
    """
    laspy = _laspy(path)
    las = read_las(source)
    labels = np.asarray(labels)
    if labels.shape != (len(las.points),):
        raise ValueError(f"{path}: {labels.size} labels for {len(las.points)} points")
    if labels.size and not 0 <= labels.min() <= labels.max() <= 255:
        raise ValueError(
            f"{path}: classes of LAS files lie in 0..255, got {labels.min()}..{labels.max()}"
        )
    format_id = las.header.point_format.id
    if labels.size and labels.max() > 31 and format_id in _EXTENDED:
        degrees = np.asarray(las.scan_angle_rank).astype(np.float64)
        las = laspy.convert(las, point_format_id=_EXTENDED[format_id], file_version="1.4")
        las.scan_angle = np.round(degrees / _ANGLE).astype(np.int16)
    las.classification = labels.astype(np.uint8)
    write_las(path, las)


def write_las(path: Path, las: Any) -> None:
    """Write a `laspy.LasData`, whole or not at all; the suffix says whether it is compressed."""
    packed = path.suffix.lower() == ".laz"
    backend = _backend(_laspy(path)) if packed else None
    with whole_file(path) as file:
        las.write(file, do_compress=packed, laz_backend=backend)


def _backend(laspy: Any) -> Any:
    """Decompressor that starts no threads: processes forked after it did would wait for ever."""
    found = laspy.LazBackend.detect_available()
    return next((b for b in found if b != laspy.LazBackend.LazrsParallel), None)


def _laspy(path: Path) -> Any:
    try:
        import laspy
    except ImportError as error:
        raise MissingPackageError(f"{path}: LAS files need laspy: {install('las')}") from error
    if path.suffix.lower() == ".laz" and not laspy.LazBackend.detect_available():
        raise MissingPackageError(f"{path}: LAZ files need lazrs: {install('las')}")
    return laspy
