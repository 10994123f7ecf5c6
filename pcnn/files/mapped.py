"""Arrays whose values lie in mapped files."""

from __future__ import annotations

import mmap

import numpy as np


def forget_pages(*arrays: np.ndarray | None) -> None:
    """Let pages of mapped files that were read or written count as memory of this process no more.

    The values stay what they are, in the file. Arrays in memory, those mapped by copy on write
    (mode ``c``), whose changes are in no file, and None are left alone.
    """
    for values in arrays:
        base: object = values
        private = False
        while isinstance(base, np.ndarray):
            private |= isinstance(base, np.memmap) and base.mode == "c"
            base = base.base
        if isinstance(base, mmap.mmap) and not private and hasattr(mmap, "MADV_DONTNEED"):
            base.madvise(mmap.MADV_DONTNEED)
