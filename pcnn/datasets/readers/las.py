"""LAS and LAZ files of airborne, mobile and terrestrial scanners, through laspy in a process.

Source: LAS specification 1.4 R15 (ASPRS, 2019).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, Any

import numpy as np

from pcnn.datasets.readers.columns import COLORS, PART, Columns, also_called, full_color, meant
from pcnn.errors import FileError, MissingPackageError
from pcnn.files.bounded import forget_pages
from pcnn.files.whole_file import whole_file
from pcnn.messages import install

SUFFIXES = (".las", ".laz")

#: Largest intensity: it is normalised to 16 bits.
FULL = 65535.0
#: A file that takes longer, and a second for so many bytes more, is damaged [s].
_SECONDS, _SPEED = 45, 2e5
_CHILD = Path(__file__).with_name("las_child.py")


def read_las(path: Path, wanted: Sequence[str]) -> Columns:
    """The points of a file of any size, with the wanted columns that it has.

    They lie in a temporary file, which is mapped: what is read of them is in memory, and no more.
    """
    if find_spec("laspy") is None:
        raise MissingPackageError(f"{path}: LAS files need laspy: {install('las')}")
    packed = path.suffix.lower() == ".laz"
    if packed and find_spec("lazrs") is None and find_spec("laszip") is None:
        raise MissingPackageError(f"{path}: LAZ files need lazrs: {install('las')}")
    with NamedTemporaryFile(suffix=".npy") as held:
        told = _child(path, held, wanted=[also_called(name) for name in wanted])
        rows = np.load(held.name, mmap_mode="r")
    values = {name: rows[name] for name in rows.dtype.names if name != "places"}
    labels = values.get("classification")
    words = all(one.dtype == np.uint16 for name, one in values.items() if meant(name) in COLORS)
    top = FULL if words else full_color(values)  # of further columns that are called so
    return Columns(path, rows["places"], values, labels, FULL, True, color_max=top, held=told)


def _child(path: Path, out: IO[bytes], **request: Any) -> str:
    """Let the process do what is requested, and write what it finds; returns its last line."""
    asked = json.dumps({"path": os.path.abspath(path), **request})
    # packages lie where this process finds them, and nothing of the working folder counts
    code = "import runpy, sys; sys.path[:] = {}; runpy.run_path({!r}, run_name='__main__')"
    code = code.format([place for place in sys.path if place], str(_CHILD))
    patience = _SECONDS + path.stat().st_size / _SPEED
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-c", code, asked],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "RUST_BACKTRACE": "0"},
            timeout=patience,
        )
    except subprocess.TimeoutExpired as error:
        raise FileError(path, f"its reader needs more than {patience:.0f} s") from error
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines() or [""]
        said = next((line for line in lines if "memory allocation" in line), lines[-1])
        end = "" if done.returncode > 0 else f"its reader ended with {done.returncode}: "
        raise FileError(path, f"not a whole LAS file ({end}{said[:300]})")
    return done.stderr.decode(errors="replace").rpartition("\n")[2]


def write_las_labels(path: Path, source: Path, labels: np.ndarray) -> None:
    """Write a copy of a file of any size with other classes, whole or not at all."""
    if labels.size and not 0 <= labels.min() <= labels.max() <= 255:
        found = f"{labels.min()}..{labels.max()}"
        raise ValueError(f"{path}: classes of LAS files lie in 0..255, got {found}")
    with whole_file(path) as file, NamedTemporaryFile(dir=path.parent) as held:
        for first in range(0, len(labels), PART):
            held.write(labels[first : first + PART].astype(np.uint8).tobytes())
            forget_pages(labels)
        held.flush()
        packed, most = path.suffix.lower() == ".laz", int(labels.max(initial=0))
        _child(source, file, classes=os.path.abspath(held.name), packed=packed, most=most)
