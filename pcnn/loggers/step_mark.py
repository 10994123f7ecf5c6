"""The last step a tracker has seen, so that a resumed run does not report steps twice."""

from __future__ import annotations

import os
from pathlib import Path


class StepMark:
    """Remember the largest step that was logged, across processes.

    A run that is killed between two checkpoints repeats the steps since the first of them. It
    reports the same numbers for them again (resuming is exact), but a tracker would draw a line
    that jumps back. `admits` is False for those steps.

    Args:
        path: small text file; its folder is created with the first step.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._last = -1
        if self._path.exists():
            text = self._path.read_text().strip()
            if not text.isdigit():
                raise ValueError(f"{self._path} holds {text!r}, not a step; delete it")
            self._last = int(text)

    def admits(self, step: int) -> bool:
        """Note `step` and return whether it is not behind the last one.

        The last step itself is admitted: training and validation figures share a step, and the
        interruption may have fallen between them.
        """
        if step < self._last:
            return False
        if step > self._last:
            self._last = step
            self._path.parent.mkdir(parents=True, exist_ok=True)
            part = self._path.with_name(self._path.name + ".part")
            part.write_text(f"{step}\n")
            os.replace(part, self._path)
        return True
