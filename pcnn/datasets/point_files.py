"""Point clouds from ``.bin``, ``.npy``, ``.pcd`` and ``.ply`` files, and labels beside them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from pcnn.datasets.label_files import read_label_file
from pcnn.datasets.pcd import read_pcd
from pcnn.datasets.ply import read_ply, read_ply_header
from pcnn.datasets.rounding import rounded_points
from pcnn.datasets.samples import Cloud

SUFFIXES = (".bin", ".npy", ".pcd", ".ply")

_INTENSITY = ("intensity", "remission", "reflectance", "scalar_intensity", "scalar_Intensity")
_COLORS = ("red", "green", "blue")
_LABELS = ("label", "class", "scalar_label", "scalar_Label", "scalar_class", "scalar_Class")


def read_points(path: str | Path, name: str | None = None) -> Cloud:
    """Read a cloud: positions [m], further channels, and labels where a PLY file holds them.

    * ``.bin``: float32 x, y, z, remission (KITTI).
    * ``.npy``: [N, 3 + F] numbers: x, y, z and F further channels.
    * ``.ply``: float x, y, z; ``intensity`` (or ``remission``, ``reflectance``) and ``red``,
      ``green``, ``blue`` (integers are divided by their largest value) become the channels, in
      this order; an integer ``label`` or ``class`` (also with CloudCompare's ``scalar_``) the
      labels, as they are.
    * ``.pcd``: float x, y, z, and the intensity where it is a field.

    Args:
        path: the file.
        name: name of the cloud; the file's stem unless given.

    Returns:
        A cloud of all points of the file.

    Raises:
        FileNotFoundError: no such file.
        ValueError: another suffix, a file that breaks its format, NaN or infinite numbers, or
            coordinates too large for float32; the message names the file and the rule.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    labels = None
    if path.suffix == ".bin":
        values = read_bin(path)
    elif path.suffix == ".npy":
        values = _read_npy(path)
    elif path.suffix == ".pcd":
        values = _read_pcd(path)
    elif path.suffix == ".ply":
        values, labels = _read_ply(path)
    else:
        raise ValueError(f"{path}: a cloud ends in {', '.join(SUFFIXES)}, not {path.suffix!r}")
    tensor = torch.from_numpy(values)
    return Cloud(
        tensor[:, :3].contiguous(),
        tensor[:, 3:].contiguous(),
        None if labels is None else torch.from_numpy(labels),
        path.stem if name is None else name,
        str(path),
        torch.arange(len(values)),
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
    return _finite(path, points)


def label_source(path: Path) -> Path | None:
    """Return the file that labels a cloud, which may be the cloud itself; None if there is none.

    ``NAME.label`` and ``NAME_label.npy`` are looked for; they win over a PLY file's own property.

    Raises:
        ValueError: both files exist.
    """
    beside = [p for p in (path.with_suffix(".label"), _npy_labels(path)) if p.is_file()]
    if len(beside) > 1:
        raise ValueError(f"{path}: both {beside[0].name} and {beside[1].name} label it; keep one")
    if beside:
        return beside[0]
    if path.suffix == ".ply" and set(_LABELS) & set(read_ply_header(path).names):
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


def _npy_labels(path: Path) -> Path:
    return path.with_name(f"{path.stem}_label.npy")


def _read_npy(path: Path) -> np.ndarray:
    values = _load(path)
    if values.ndim != 2 or values.shape[1] < 3 or values.dtype.kind not in "fiu":
        raise ValueError(
            f"{path}: points must be numbers [N, 3 or more], found {values.dtype} "
            f"{list(values.shape)}"
        )
    points = rounded_points(values[:, :3], path)
    return _finite(path, np.concatenate([points, values[:, 3:].astype(np.float32)], axis=1))


def _load(path: Path) -> np.ndarray:
    try:
        values = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path}: not a whole .npy file ({error})") from error
    if not isinstance(values, np.ndarray):
        raise ValueError(f"{path}: an .npy file holds one array; this is an archive")
    return values


def _read_ply(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    vertices = read_ply(path)
    names = vertices.dtype.names or ()
    columns = [*_places(path, vertices).T]
    columns += [vertices[name] for name in _INTENSITY if name in names][:1]
    if set(_COLORS) <= set(names):
        columns += [_unit(vertices[name]) for name in _COLORS]
    values = np.stack([column.astype(np.float32) for column in columns], axis=1)
    for name in _LABELS:
        if name in names:
            labels = vertices[name]
            whole = labels.astype(np.int64)
            if not np.array_equal(whole, labels):
                raise ValueError(f"{path}: property {name} must hold whole numbers")
            return _finite(path, values), whole
    return _finite(path, values), None


def _read_pcd(path: Path) -> np.ndarray:
    points = read_pcd(path)
    names = points.dtype.names or ()
    columns = [*_places(path, points).T]
    columns += [points[name].astype(np.float32) for name in _INTENSITY if name in names][:1]
    return _finite(path, np.stack(columns, axis=1))


def _places(path: Path, points: np.ndarray) -> np.ndarray:
    return rounded_points(np.stack([points[axis] for axis in "xyz"], axis=1), path)


def _unit(color: np.ndarray) -> np.ndarray:
    if np.issubdtype(color.dtype, np.integer):
        return color.astype(np.float32) / np.iinfo(color.dtype).max
    return color


def _finite(path: Path, values: np.ndarray) -> np.ndarray:
    bad = ~np.isfinite(values).all(axis=1)
    if bad.any():
        raise ValueError(
            f"{path}: {int(bad.sum())} of {len(values)} points hold NaN or infinite numbers, the "
            f"first is point {int(bad.argmax())}"
        )
    return values
