"""Writing checkpoints so that a killed process never loses the previous one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO

SUFFIX = ".part"  # of a file that is being written; whatever bears it after a crash is garbage


def write_whole(checkpoint: dict[str, Any], path: Path) -> None:
    """Save a checkpoint under `path`, entirely or not at all.

    The bytes go to a temporary name in the same folder, are forced to disk and then renamed over
    `path`. A rename inside a folder is atomic, so at every instant `path` is either the previous
    file or the new one, also when the process is killed or the power fails.

    Args:
        checkpoint: what `torch.save` takes.
        path: local file; its folder is created.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + SUFFIX)
    try:
        with part.open("wb") as file:
            torch.save(checkpoint, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    # the rename itself lives in the folder, which has to reach the disk too
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


class AtomicCheckpointIO(TorchCheckpointIO):
    """Lightning's way to disk, replaced by `write_whole`. Local files only.

    Lightning's own writer streams through the system's temporary folder, which may be small or on
    another device, and does not force the bytes to disk before it moves them.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | os.PathLike[str], storage_options: Any = None
    ) -> None:
        """Write `checkpoint` to `path`.

        Raises:
            TypeError: `storage_options` were given; there are none for local files.
        """
        if storage_options is not None:
            raise TypeError(f"storage_options mean nothing for a local file, got {storage_options}")
        write_whole(checkpoint, Path(path))
