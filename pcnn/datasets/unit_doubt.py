"""Why the unit of a cloud may not be the metre."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class UnitDoubt:
    """Why the unit of a cloud looks wrong.

    Args:
        reason: what the numbers show, and what to do.
        scale: metres in a unit of the file, where one explains the numbers; else None.
    """

    reason: str
    scale: float | None = None

    def __str__(self) -> str:
        return self.reason
