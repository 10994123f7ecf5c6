"""Writing checkpoints so that a killed process never loses the previous one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO

from pcnn.callbacks.checkpoint_file import read_checkpoint
from pcnn.callbacks.checksum import add_checksum
from pcnn.files.whole_file import whole_file


def write_whole(checkpoint: dict[str, Any], path: Path) -> None:
    """Save a checkpoint with its checksum under `path`, entirely or not at all.

    At every instant `path` is either the previous file or the new one, also when the process is
    killed or the power fails.

    Args:
        checkpoint: what `torch.save` takes.
        path: local file; its folder is created.

    Raises:
        StorageError: the disk is full.
    """
    with whole_file(path, durable=True) as file:
        torch.save(checkpoint, file)
        add_checksum(file)


class AtomicCheckpointIO(TorchCheckpointIO):
    """Lightning's way to disk, replaced by `write_whole` and `read_checkpoint`. Local files only.

    Lightning's own writer streams through the system's temporary folder, which may be small or on
    another device, and does not force the bytes to disk before it moves them; its reader takes
    bytes as they are.
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

    def load_checkpoint(
        self,
        path: str | os.PathLike[str],
        map_location: Any = None,
        weights_only: bool | None = None,
    ) -> dict[str, Any]:
        """Read a checkpoint: tensors and plain values alone, whatever `weights_only` says.

        Raises:
            CheckpointError: a damaged file.
        """
        return read_checkpoint(Path(path), map_location=map_location, mmap=False)
