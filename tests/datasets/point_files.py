"""Points of a scanner and of a room as bytes of every format, and what refuses a damaged file."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pcnn.datasets.readers.clouds import Reading, read_points
from pcnn.errors import FileError

N = 301
PLAIN = Reading()


def rotating(n: int = N, seed: int = 0) -> np.ndarray:
    """[n, 4] float32 of a rotating scanner: x, y, z and remission in 0..1."""
    rng = np.random.default_rng(seed)
    angle, far = np.linspace(0, 2 * np.pi, n), rng.gamma(2, 6, n) + 2
    z = np.maximum(-1.7, far * np.tan(rng.uniform(-0.4, 0.05, n)))
    i = rng.beta(2, 5, n)
    return np.column_stack([far * np.cos(angle), far * np.sin(angle), z, i]).astype(np.float32)


def room(n: int = N) -> np.ndarray:
    """[n, 6] float32: a corner of a room from (0, 0, 0) on, and colour in 0..255."""
    rng = np.random.default_rng(0)
    xyz = rng.uniform(0, [5, 4, 2.8], (n, 3))
    colours = np.round(np.clip(rng.normal(150, 40, (n, 3)), 0, 255))
    return np.column_stack([xyz, colours]).astype(np.float32)


def nuscenes(n: int = N) -> np.ndarray:
    """[n, 5] float32: intensity in 0..255, and the ring."""
    points = np.column_stack([rotating(n), np.arange(n) % 32]).astype(np.float32)
    points[:, 3] = np.round(points[:, 3] * 255)
    return points


def table(kind: str = "<f4", rows: np.ndarray | None = None) -> np.ndarray:
    """Records x, y, z, Intensity and an integer label."""
    rows = rotating() if rows is None else rows
    names = [*((name, kind) for name in ("x", "y", "z", "Intensity")), ("label", kind[0] + "i4")]
    found = np.zeros(len(rows), names)
    for name, column in zip(("x", "y", "z", "Intensity"), rows.T, strict=True):
        found[name] = column
    found["label"] = np.arange(len(rows)) % 7 - 1
    return found


def ply_bytes(kind: str, rows: np.ndarray) -> bytes:
    """With an element behind the vertices."""
    order = ">" if "big" in kind else "<"
    words = {"f4": "float", "f8": "double", "i4": "int", "u1": "uchar"}
    lines = ["ply", f"format {kind} 1.0", "comment by hand", f"element vertex {len(rows)}"]
    lines += [f"property {words[rows.dtype[n].str[1:]]} {n}" for n in rows.dtype.names or ()]
    lines += ["element face 1", "property list uchar int vertex_indices", "end_header", ""]
    head = "\n".join(lines).encode()
    if kind == "ascii":
        body = "\n".join(" ".join(map(repr, row)) for row in rows.tolist())
        return head + f"{body}\n3 0 1 1\n".encode()
    data = rows.astype(rows.dtype.newbyteorder(order)).tobytes()
    return head + data + struct.pack(f"{order}Biii", 3, 0, 1, 1)


def pcd_bytes(kind: str, rows: np.ndarray, head: str = "") -> bytes:
    names = rows.dtype.names or ()
    kinds = [rows.dtype[name] for name in names]
    head = head or (
        f"# .PCD v0.7\nVERSION 0.7\nFIELDS {' '.join(names)}\n"
        f"SIZE {' '.join(str(k.itemsize) for k in kinds)}\n"
        f"TYPE {' '.join(k.kind.upper() for k in kinds)}\nWIDTH {len(rows)}\nHEIGHT 1\n"
        f"VIEWPOINT 0 0 0 1 0 0 0\nPOINTS {len(rows)}\nDATA {kind}\n"
    )
    if kind == "ascii":
        body = "\n".join(" ".join(map(repr, row)) for row in rows.tolist()).encode()
    else:
        body = rows.tobytes()
    return head.encode() + body


def lines_of(rows: np.ndarray, head: str = "", between: str = " ") -> bytes:
    body = "\n".join(between.join(map(repr, row)) for row in rows.astype(float).tolist())
    return (head + body).encode()


def saved(path: Path, write: Any) -> Path:
    """A file of bytes, of an array, or of what a function writes."""
    if isinstance(write, bytes):
        path.write_bytes(write)
    elif isinstance(write, np.ndarray):
        write.astype("<f4").tofile(path) if path.suffix == ".bin" else np.save(path, write)
    else:
        write(path)
    return path


def refused(path: Path, reading: Reading = PLAIN) -> None:
    with pytest.raises(FileError) as error:
        read_points(path, reading=reading)
    assert error.value.path == path
    assert error.value.rule
