"""Lightning's way to the disk, through checkpoint files that are whole or not there at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO

from pcnn.checkpoints.checkpoint_file import read_checkpoint, write_whole


class AtomicCheckpointIO(TorchCheckpointIO):
    """Lightning's way to disk, replaced by `write_whole` and `read_checkpoint`. Local files only.

    Lightning's own writer streams through the system's temporary folder, which may be small or on
    another device, and does not force the bytes to disk before it moves them; its reader takes
    bytes as they are.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | os.PathLike[str], storage_options: Any = None
    ) -> None:
        """Write `checkpoint` to `path`."""
        if storage_options is not None:
            raise TypeError(f"storage_options mean nothing for a local file, got {storage_options}")
        write_whole(checkpoint, Path(path))

    def load_checkpoint(
        self,
        path: str | os.PathLike[str],
        map_location: Any = None,
        weights_only: bool | None = None,
    ) -> dict[str, Any]:
        """Read a checkpoint: tensors and plain values alone, whatever `weights_only` says."""
        return read_checkpoint(Path(path), map_location=map_location, mmap=False)
