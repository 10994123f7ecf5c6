"""A simulator of one format, and the names of the folders that it writes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# arguments of simulators that change nothing in the files
_MANNER = ("root", "seed", "workers", "progress")


@dataclass(frozen=True)
class Simulator:
    """A simulator of sets in one official format."""

    name: str  # of the format, as the folders begin
    version: str  # changes whenever the same seed would give other bytes
    write: Callable[..., Path]  # root and keyword arguments; returns the root

    def folder(self, data_dir: str | Path, arguments: Mapping[str, Any]) -> Path:
        """Return DATA_DIR/simulated/NAME-SEED-VERSION, with the arguments that are not defaults."""
        known = inspect.signature(self.write).parameters
        other = "".join(
            f"-{key}-{arguments[key]}"
            for key in known
            if key not in _MANNER and key in arguments and arguments[key] != known[key].default
        )
        seed = arguments.get("seed", 0)
        return Path(data_dir) / "simulated" / f"{self.name}-{seed}-{self.version}{other}"
