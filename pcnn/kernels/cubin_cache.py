"""Compiled kernels on disk: found whole or not at all, written by one process."""

from __future__ import annotations

import contextlib
import hashlib
import warnings
from collections.abc import Callable
from pathlib import Path

from pcnn.files.user_cache import locked, user_cache
from pcnn.files.whole_file import whole_file

DIGEST = hashlib.sha256
DIGEST_BYTES = DIGEST().digest_size


def folder() -> Path:
    """Folder of compiled kernels, in the user's cache folder (XDG base directories)."""
    return user_cache() / "pcnn" / "cubin"


def cached(key: str, build: Callable[[], bytes]) -> bytes:
    """Bytes stored under a key, built and stored where there are none.

    Every entry begins with its checksum: one that was cut short or damaged is built again. Writers
    of one key wait for each other, so that many processes that start together build once. Where
    nothing can be stored a warning says so, and the bytes are built all the same.
    """
    with contextlib.ExitStack() as stack:
        try:
            path = folder() / f"{key}.cubin"
            found = read(path)
            if found is None:
                # entries share 16 lock files, so that these do not pile up
                stack.enter_context(locked(path.parent / f"lock-{path.name[0]}"))
                found = read(path)  # another process may have written it while this one waited
        except (OSError, RuntimeError) as error:
            _warn(error)
            return build()
        if found is None:
            found = build()
            try:
                with whole_file(path) as file:  # readers see all of it or nothing
                    file.write(DIGEST(found).digest() + found)
            except OSError as error:
                _warn(error)
        return found


def read(path: Path) -> bytes | None:
    """Bytes of an entry, ``None`` where it is missing, unreadable or damaged."""
    try:
        stored = path.read_bytes()
    except OSError:
        return None
    digest, content = stored[:DIGEST_BYTES], stored[DIGEST_BYTES:]
    return content if digest == DIGEST(content).digest() else None


def _warn(error: Exception) -> None:
    warnings.warn(
        f"compiled CUDA kernels cannot be stored ({error}): every process compiles its own. "
        "Make that folder writable, or set XDG_CACHE_HOME to one that is.",
        RuntimeWarning,
        stacklevel=2,
    )
