"""confusion.json: what a run counted, so that figures of several runs can be computed from sums."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from pcnn.errors import FileError
from pcnn.experiment.errors import ConfigError
from pcnn.experiment.run_folder import write_whole
from pcnn.files.bounded import named
from pcnn.files.text import read_json

NAME = "confusion.json"


@dataclass(frozen=True)
class Counts:
    """Confusion counts of a run.

    Args:
        class_names: C names.
        passes: [C, C + 1] int64 by pass: `val`, `test`, and with `/tta` those of the summed views;
            rows truth, the last column points without a prediction.
    """

    class_names: tuple[str, ...]
    passes: Mapping[str, Tensor]


def write_counts(
    folder: Path, passes: Mapping[str, Tensor], class_names: Sequence[str]
) -> Path | None:
    """Write the counts of a task's last passes into its run folder; nothing where there are none.

    Args:
        folder: of the run.
        passes: [C, C + 1] integer counts by pass.
        class_names: C names.
    """
    if not passes:
        return None
    content = {
        "class_names": list(class_names),
        "counts": {name: counts.cpu().tolist() for name, counts in passes.items()},
    }
    path = folder / NAME
    write_whole(path, json.dumps(content) + "\n")
    return path


def read_counts(folder: Path) -> Counts:
    """Read the counts of a run.

    Raises:
        ConfigError: the folder holds none.
        FileError: they cannot be read.
    """
    path = folder / NAME
    if not path.is_file():
        raise ConfigError(
            f"{folder} holds no {NAME}: give the folder of a finished train.py or eval.py run."
        )
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
                    f"{name[:40]} holds {list(counts.shape)} counts for {len(names)} classes; run "
                    "the evaluation again.",
                )
    return Counts(names, passes)
