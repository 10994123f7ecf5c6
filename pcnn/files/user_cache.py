"""The folder of what a user's programs keep to be quicker the next time."""

from __future__ import annotations

import os
from pathlib import Path


def user_cache() -> Path:
    """The user's cache folder (XDG base directories); it may not exist."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
