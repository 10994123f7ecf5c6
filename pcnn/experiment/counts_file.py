"""Confusion counts of a run, in `confusion.json` of its folder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from pcnn.errors import FileError, MissingFileError
from pcnn.experiment.run_folder import write_whole
from pcnn.files.bounded import named
from pcnn.files.text import read_json

CONFUSION = "confusion.json"


@dataclass(frozen=True)
class Counts:
    """Confusion counts of a run."""

    class_names: tuple[str, ...]  # C names
    passes: Mapping[str, Tensor]


def write_counts(
    folder: Path, passes: Mapping[str, Tensor], class_names: Sequence[str]
) -> Path | None:
    """Write the counts of a task's last passes into its run folder, if there are any."""
    if not passes:
        return None
    content = {
        "class_names": list(class_names),
        "counts": {name: counts.cpu().tolist() for name, counts in passes.items()},
    }
    path = folder / CONFUSION
    write_whole(path, json.dumps(content) + "\n")
    return path


def read_counts(folder: Path) -> Counts:
    """Read the counts of a run."""
    path = folder / CONFUSION
    if not path.is_file():
        raise MissingFileError(path, "no such file; a finished run has one")
    content = read_json(path)
    with named(path, "file of counts"):
        names = tuple(map(str, content["class_names"]))
        passes = {
            name: torch.tensor(counts, dtype=torch.int64)
            for name, counts in content["counts"].items()
        }
        for name, counts in passes.items():
            if counts.shape != (len(names), len(names) + 1) or int(counts.min()) < 0:
                raise FileError(
                    path,
                    f"{name[:40]} holds {list(counts.shape)} counts for {len(names)} classes",
                )
    return Counts(names, passes)
