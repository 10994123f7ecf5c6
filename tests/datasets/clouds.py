"""Small clouds and a small set in the official layout."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from pcnn.datasets.cloud import Cloud
from pcnn.datasets.readers.clouds import read_columns
from pcnn.files.whole_file import write_ply


def scan(n: int, seed: int = 0) -> np.ndarray:
    """[n, 4] float32 within 20 m of the origin, remission in 0..1."""
    rng = np.random.default_rng(seed)
    return np.concatenate(
        [rng.uniform(-20, 20, (n, 2)), rng.uniform(-2, 2, (n, 1)), rng.random((n, 1))], axis=1
    ).astype(np.float32)


def cloud(n: int, seed: int = 0) -> Cloud:
    values = torch.from_numpy(scan(n, seed))
    labels = torch.randint(0, 19, (n,), generator=torch.Generator().manual_seed(seed))
    return Cloud(
        values[:, :3].contiguous(),
        values[:, 3:].contiguous(),
        labels,
        "c",
        "c.bin",
        torch.arange(n),
    )


def write_scan(root: Path, sequence: int, frame: int, n: int, labelled: bool = True) -> Path:
    """Write one scan of sequence and frame; raw ids cycle through some official ones."""
    folder = root / "sequences" / f"{sequence:02d}"
    path = folder / "velodyne" / f"{frame:06d}.bin"
    path.parent.mkdir(parents=True, exist_ok=True)
    scan(n, seed=100 * sequence + frame).tofile(path)
    if labelled:
        (folder / "labels").mkdir(exist_ok=True)
        ids = np.array([40, 10, 252, 70, 0, 50, 81], dtype=np.uint32)
        words = ids[np.arange(n) % len(ids)] | (np.arange(n, dtype=np.uint32) % 5 << 16)
        words.tofile(folder / "labels" / f"{frame:06d}.label")
    return path


def records_of(path: Path) -> np.ndarray:
    """Records of a PLY or PCD file."""
    values = read_columns(path).values
    found = np.empty(len(values["x"]), [(n, v.dtype, v.shape[1:]) for n, v in values.items()])
    for name, column in values.items():
        found[name] = column
    return found


def write_vertices(path: Path, vertices: np.ndarray) -> None:
    """Write a PLY file of records."""
    write_ply(path, [vertices], vertices.dtype)
