"""The error of a file that breaks its format."""

from __future__ import annotations

from pathlib import Path


class CloudFileError(ValueError):
    """A file of points or labels that cannot be read.

    Args:
        path: the file.
        rule: which rule it breaks, and what to do.
    """

    def __init__(self, path: Path, rule: str) -> None:
        super().__init__(path, rule)
        self.path = path
        self.rule = rule

    def __str__(self) -> str:
        return f"{self.path}: {self.rule}"
