"""A run as a tracker knows it: its id, its name, and the last step that was logged."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning.pytorch.utilities import rank_zero_only

from pcnn.files.whole_file import drop_parts, whole_file

ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz"


def stored_run_id(run_folder: str | Path) -> str | None:
    """Return the id in ``<run folder>/run_id.txt``, made on rank 0 when there is none.

    The file is written before training starts, so that a run killed at any time is continued under
    its own id. Other ranks never write; they get None while rank 0 has not written yet, which is
    harmless because only rank 0 talks to a tracker.

    Args:
        run_folder: folder of the run; created.

    Raises:
        ValueError: the file exists but does not hold an id.
    """
    path = Path(run_folder) / "run_id.txt"
    if not path.exists():
        if getattr(rank_zero_only, "rank", 0) != 0:
            return None
        with whole_file(path) as file:
            file.write("".join(secrets.choice(ALPHABET) for _ in range(8)).encode() + b"\n")
    run_id = path.read_text().strip()
    if not run_id or not all(c.isalnum() or c in "-_" for c in run_id):
        raise ValueError(
            f"{path} holds {run_id!r}, which is no run id (letters, digits, - and _); "
            "delete the file to start a new id"
        )
    return run_id


def run_name(folder: Path, config: Mapping[str, Any] | None) -> str:
    """Model, data set, voxel size, points where they are native, and the folder's name (a date).

    For example ``minkunet-kitti-0.1m-2026-03-01_12-30-00``. A job of a sweep has a number for its
    folder, so the sweep's name stands before that. Parts that the configuration lacks are left out.

    Args:
        folder: of the run.
        config: resolved configuration, or None for the folder's name alone.
    """
    groups = {key: value for key, value in (config or {}).items() if isinstance(value, dict)}
    name = {key: group.get("name") for key, group in groups.items()}
    data = groups.get("dataset", {})
    registration = name.get("task") == "registration"
    edge = data.get("pair_voxel_size" if registration else "voxel_size", data.get("voxel_size"))
    place = folder.resolve()
    parts = [
        name.get("model"),
        name.get("dataset"),
        None if edge is None else f"{edge:g}m",
        "point" if name.get("geometry") == "point" else None,
        place.parent.name if place.name.isdigit() else None,
        place.name,
    ]
    return "-".join(str(part) for part in parts if part)


class StepMark:
    """Remember the largest step that was logged, across processes.

    A run that is killed between two checkpoints repeats the steps since the first of them. It
    reports the same numbers for them again (resuming is exact), but a tracker would draw a line
    that jumps back. `admits` is False for those steps.

    Args:
        path: small text file; its folder is created with the first step.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._last = -1
        drop_parts(self._path.parent, self._path.name)  # left by a killed process
        if self._path.exists():
            text = self._path.read_text().strip()
            if not text.isdigit():
                raise ValueError(f"{self._path} holds {text!r}, not a step; delete it")
            self._last = int(text)

    def admits(self, step: int) -> bool:
        """Note `step` and return whether it is not behind the last one.

        The last step itself is admitted: training and validation figures share a step, and the
        interruption may have fallen between them.
        """
        if step < self._last:
            return False
        if step > self._last:
            self._last = step
            with whole_file(self._path) as file:
                file.write(f"{step}\n".encode())
        return True
