"""Printing what comes from outside: names of files, contents of files, messages of libraries.

A file may be called ``x[/z]``, which rich would read as markup and fail at, or hold control
sequences, which a terminal would obey. Every console of the project is a `Console` of this file.
"""

from __future__ import annotations

import re
from typing import Any

import rich.console
from rich.text import Text

#: Control characters (C0 but line feed and tab, DEL, C1), and what turns the direction of text.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def visible(text: object) -> str:
    r"""The text with control characters as they are written in Python: ``\x1b``."""
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], str(text))


def plain(text: object) -> Text:
    """The text as rich prints it unchanged on any console, control characters made visible."""
    return Text(visible(text))


class Console(rich.console.Console):
    """A console of rich that takes every string as it is: no markup, no control characters.

    Args:
        **options: of `rich.console.Console`.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"markup": False, "emoji": False, **options})

    def render_str(self, text: str, **options: Any) -> Text:
        """The text of a string, wherever it stands: a line, a cell, a heading."""
        return super().render_str(visible(text), **options)

    def say(self, text: object, label: str = "", style: str = "") -> None:
        """Print a line that is not wrapped, behind a coloured label if there is one."""
        lead = Text.assemble((visible(label), style), ": ") if label else Text()
        self.print(lead + plain(text), soft_wrap=True)
