"""The identity of a run in its tracker, kept with the run."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from lightning.pytorch.utilities import rank_zero_only

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
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name("run_id.txt.part")
        part.write_text("".join(secrets.choice(ALPHABET) for _ in range(8)) + "\n")
        os.replace(part, path)
    run_id = path.read_text().strip()
    if not run_id or not all(c.isalnum() or c in "-_" for c in run_id):
        raise ValueError(
            f"{path} holds {run_id!r}, which is no run id (letters, digits, - and _); "
            "delete the file to start a new id"
        )
    return run_id
