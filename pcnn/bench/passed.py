"""Whole checks that have passed, kept on disk: a suite measured figure by figure checks once.

The whole check of a dataflow takes seconds on a GPU, and every process needs those of all that it
times. A check that has passed counts for the same source files, device, torch and Triton; one that
failed is never kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path

import torch

from pcnn.files.locked import locked
from pcnn.files.user_cache import user_cache
from pcnn.kernels.sources import FOLDER as CUDA_SOURCES

#: Folders whose files decide what a check finds.
SOURCES = Path(__file__).resolve().parents[1], CUDA_SOURCES
SUFFIXES = (".py", ".cu", ".cuh")


def folder() -> Path:
    """Folder of one empty file a check, in the user's cache folder (XDG base directories).

    Raises:
        RuntimeError: the user has no home folder.
    """
    return user_cache() / "pcnn" / "checked"


def once(what: object, device: torch.device, check: Callable[[], None]) -> None:
    """Run a check, unless the same has passed here before; of several processes one runs it.

    Kept on a GPU alone, where it takes long, and of objects that are made of this package's classes
    alone: the source of others is not known. Where nothing can be stored the check runs every time.

    Args:
        what: frozen settings of what is checked, with all of them in its ``repr``.
        device: where.
        check: raises where ``what`` is wrong; its errors pass through.
    """
    if device.type != "cuda" or not torch.cuda.is_available() or not _is_ours(what):
        check()
        return
    words = repr(what), check.__name__, torch.cuda.get_device_name(device), torch.__version__
    file = folder() / hashlib.sha256("\n".join((*words, source_digest())).encode()).hexdigest()
    with ExitStack() as stack:
        with suppress(OSError):  # it is checked here, and again next time
            stack.enter_context(locked(file.with_suffix(".lock")))
        if file.exists():
            return
        check()
        with suppress(OSError):
            file.touch()


@cache
def source_digest() -> str:
    """Digest of all source files of the package, and of Triton's version."""
    import triton

    digest = hashlib.sha256(triton.__version__.encode())
    for root in SOURCES:
        for file in sorted(path for path in root.rglob("*") if path.suffix in SUFFIXES):
            content = file.read_bytes()
            name = file.relative_to(root).as_posix()
            digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def _is_ours(what: object) -> bool:
    """True if an object and all dataclasses that it is made of are classes of this package."""
    if isinstance(what, tuple):
        return all(map(_is_ours, what))
    if not is_dataclass(what):
        return isinstance(what, str | int | float | None)
    own = type(what).__module__.partition(".")[0] == "pcnn"
    return own and all(_is_ours(getattr(what, field.name)) for field in fields(what))
