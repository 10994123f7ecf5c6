"""Mistakes in a configuration, in at most three lines that name what is possible."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from pcnn.errors import UserError

MAX_LINES = 3
MAX_NAMES = 40


class ConfigError(UserError):
    """A request that cannot be run; the text says why and what can, in at most three lines."""


class UnservedTaskError(ConfigError):
    """The chosen model or data set does not serve the chosen task.

    Args:
        text: two lines.
        task: the task, so that those that serve it can be named.
        group: ``model`` or ``dataset``.
    """

    def __init__(self, text: str, task: str, group: str) -> None:
        super().__init__(text)
        self.task, self.group = task, group


def nearest(name: str, names: Iterable[str]) -> str:
    """' Did you mean X or Y?' for the names closest to `name`, or nothing."""
    close = difflib.get_close_matches(name, list(names), n=2, cutoff=0.6)
    return f" Did you mean {' or '.join(close)}?" if close else ""


def listed(names: Iterable[str]) -> str:
    """Names in one line, cut after `MAX_NAMES`."""
    names = list(names)
    tail = ", ..." if len(names) > MAX_NAMES else ""
    return ", ".join(names[:MAX_NAMES]) + tail
