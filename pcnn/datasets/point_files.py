"""Point clouds from files of all formats, and labels beside them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from pcnn.datasets import las
from pcnn.datasets.channels import COLORS, Reading
from pcnn.datasets.label_files import read_label_file
from pcnn.datasets.label_places import label_files
from pcnn.datasets.pcd import read_pcd
from pcnn.datasets.ply import read_ply, read_ply_header
from pcnn.datasets.rounding import rounded_points
from pcnn.datasets.samples import Cloud

SUFFIXES = (".bin", ".npy", ".pcd", ".ply", *las.SUFFIXES)

_LABELS = ("label", "class", "scalar_label", "scalar_Label", "scalar_class", "scalar_Class")
_PLAIN = Reading()

# places [P, 3], channels [P, F] float32, labels [P] or None
_Content = tuple[np.ndarray, np.ndarray, np.ndarray | None]


def read_points(path: str | Path, name: str | None = None, reading: Reading = _PLAIN) -> Cloud:
    """Read a cloud: positions [m], further channels, and labels where the file itself holds them.

    * ``.bin``: float32 x, y, z, remission (KITTI).
    * ``.npy``: [N, 3 + F] numbers: x, y, z and F further channels.
    * ``.ply``: float x, y, z; ``intensity`` (or ``remission``, ``reflectance``) and ``red``,
      ``green``, ``blue`` (integers are divided by their largest value) become the channels, in
      this order; an integer ``label`` or ``class`` (also with CloudCompare's ``scalar_``) the
      labels, as they are.
    * ``.pcd``: float x, y, z, and the intensity where it is a field.
    * ``.las``, ``.laz``: x, y, z; intensity / 65535, and colours in 0..1 where the point format has
      them, become the channels, ``classification`` the labels, as it is. Needs the extra ``las``.

    Args:
        path: the file; its suffix, in any case, says the format.
        name: name of the cloud; the file's stem unless given.
        reading: other channels, and where the origin lies.

    Returns:
        A cloud of all points of the file.

    Raises:
        FileNotFoundError: no such file.
        ImportError: a package that the format needs is not installed.
        ValueError: another suffix, a file that breaks its format, NaN or infinite numbers, or
            coordinates too large for float32; the message names the file and the rule.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise ValueError(f"{path}: a cloud ends in {', '.join(SUFFIXES)}, not {path.suffix!r}")
    places, channels, labels = _READERS[suffix](path, reading)
    _check_finite(path, places, channels)
    origin = reading.origin(places, in_map=suffix in las.SUFFIXES)
    x, y, z = origin.tolist()
    return Cloud(
        torch.from_numpy(rounded_points(places - origin if origin.any() else places, path)),
        torch.from_numpy(channels),
        None if labels is None else torch.from_numpy(labels),
        path.stem if name is None else name,
        str(path),
        torch.arange(len(places)),
        origin=(x, y, z),
    )


def read_bin(path: Path) -> np.ndarray:
    """Read a KITTI scan through a memory map.

    Returns:
        [P, 4] float32: x, y, z [m], remission.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a size that is no multiple of 16 bytes, NaN or infinite numbers.
    """
    size = path.stat().st_size
    if size % 16:
        raise ValueError(
            f"{path}: {size} bytes are not a whole number of 16-byte points "
            f"(float32 x, y, z, remission); truncated?"
        )
    if size == 0:  # nothing to map
        return np.empty((0, 4), dtype=np.float32)
    points = np.array(np.memmap(path, dtype="<f4", mode="r").reshape(-1, 4), dtype=np.float32)
    _check_finite(path, points)
    return points


def label_source(path: Path) -> Path | None:
    """Return the file that labels a cloud, which may be the cloud itself; None if there is none.

    The files of `pcnn.datasets.label_places.label_files` are looked for; they win over a PLY file's
    own property and over the classes of a LAS file, which are always there.

    Raises:
        ValueError: several files label it.
    """
    files = label_files(path)
    if len(files) > 1:
        raise ValueError(f"{path}: both {files[0]} and {files[1]} label it; keep one")
    if files:
        return files[0]
    if path.suffix.lower() in las.SUFFIXES:
        return path
    if path.suffix.lower() == ".ply" and set(_LABELS) & set(read_ply_header(path).names):
        return path
    return None


def read_labels(path: Path, n_points: int) -> np.ndarray:
    """Read labels beside a cloud.

    Args:
        path: ``.label`` (one 4-byte word a point: class below, instance above; all ones is -1) or
            ``.npy`` ([P] integers).
        n_points: points of the cloud.

    Returns:
        [P] int64.

    Raises:
        ValueError: another count than the cloud's, or another kind of array.
    """
    if path.suffix == ".label":
        words = read_label_file(path, n_points)
        return np.where(words == 0xFFFFFFFF, -1, (words & 0xFFFF).astype(np.int64))
    labels = _load(path)
    if not np.issubdtype(labels.dtype, np.integer) or labels.shape != (n_points,):
        raise ValueError(
            f"{path}: labels must be {n_points} integers, found {labels.dtype} {list(labels.shape)}"
        )
    return labels.astype(np.int64)


def is_label_file(path: Path) -> bool:
    """Whether an ``.npy`` file holds labels, not points."""
    return path.suffix == ".npy" and path.stem.endswith("_label")


def is_cloud_file(path: Path) -> bool:
    """Whether the name of a file is that of a cloud."""
    return path.suffix.lower() in SUFFIXES and not is_label_file(path)


def _bin(path: Path, reading: Reading) -> _Content:
    points = read_bin(path)
    channels = reading.columns(path, ("intensity",), lambda _: points[:, 3], len(points))
    return points[:, :3], channels, None


def _npy(path: Path, reading: Reading) -> _Content:
    values = _load(path)
    if values.ndim != 2 or values.shape[1] < 3 or values.dtype.kind not in "fiu":
        raise ValueError(
            f"{path}: points must be numbers [N, 3 or more], found {values.dtype} "
            f"{list(values.shape)}"
        )
    if reading.channels is not None:
        raise ValueError(f"{path}: columns of .npy files have no names; leave channels out")
    return values[:, :3], values[:, 3:].astype(np.float32), None


def _load(path: Path) -> np.ndarray:
    try:
        values = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path}: not a whole .npy file ({error})") from error
    if not isinstance(values, np.ndarray):
        raise ValueError(f"{path}: an .npy file holds one array; this is an archive")
    return values


def _ply(path: Path, reading: Reading) -> _Content:
    vertices = read_ply(path)
    names = vertices.dtype.names or ()
    channels = reading.columns(path, names, vertices.__getitem__, len(vertices))
    for name in _LABELS:
        if name in names:
            labels = vertices[name]
            whole = labels.astype(np.int64)
            if not np.array_equal(whole, labels):
                raise ValueError(f"{path}: property {name} must hold whole numbers")
            return _places(vertices), channels, whole
    return _places(vertices), channels, None


def _pcd(path: Path, reading: Reading) -> _Content:
    points = read_pcd(path)
    names = points.dtype.names or ()
    # colours of this format are packed into one number
    known = names if reading.channels else [name for name in names if name not in COLORS]
    return _places(points), reading.columns(path, known, points.__getitem__, len(points)), None


def _las(path: Path, reading: Reading) -> _Content:
    points = las.read_las(path)
    channels = reading.columns(
        path,
        las.properties(points),
        lambda name: las.property_of(points, name),
        len(points.points),
        usual_max=las.FULL,
    )
    return np.asarray(points.xyz), channels, np.asarray(points.classification).astype(np.int64)


def _places(points: np.ndarray) -> np.ndarray:
    return np.stack([points[axis] for axis in "xyz"], axis=1)


def _check_finite(path: Path, *columns: np.ndarray) -> None:
    if all(np.isfinite(values).all() for values in columns):
        return
    finite = np.all([np.isfinite(values).all(axis=1) for values in columns], axis=0)
    raise ValueError(
        f"{path}: {int((~finite).sum())} of {len(finite)} points hold NaN or infinite numbers, "
        f"the first is point {int((~finite).argmax())}"
    )


_READERS: dict[str, Callable[[Path, Reading], _Content]] = {
    ".bin": _bin,
    ".npy": _npy,
    ".pcd": _pcd,
    ".ply": _ply,
    ".las": _las,
    ".laz": _las,
}
