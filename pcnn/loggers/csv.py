"""Logged figures as rows of a file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightning.pytorch.loggers import CSVLogger


class RunCSVLogger(CSVLogger):
    """Lightning's logger, which writes a row once.

    A step in front of a checkpoint is logged early, lest a kill loses it (`log_step`), and
    Lightning logs it again.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._row: tuple[int | None, str] | None = None  # what was logged last

    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Log figures, unless they are those of the call before."""
        row = (step, repr(metrics))  # NaN equals itself in writing
        if row != self._row:
            self._row = row
            super().log_metrics(dict(metrics), step)
