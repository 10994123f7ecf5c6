"""The console of rich that the project prints on: strings are text, never markup.

A file may be called ``x[/z]``, which rich would read as markup and fail at, or hold control
sequences, which a terminal would obey.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import rich.console
import rich.progress
from rich.text import Text

from pcnn.messages import visible


def plain(text: object) -> Text:
    """The text as rich prints it unchanged on any console, control characters made visible."""
    return Text(visible(text))


class Console(rich.console.Console):
    """A console of rich that takes every string as it is: no markup, no control characters."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"markup": False, "emoji": False, **options})

    def render_str(self, text: str, **options: Any) -> Text:
        """The text of a string, wherever it stands: a line, a cell, a heading."""
        return super().render_str(visible(text), **options)

    def say(self, text: object, label: str = "", style: str = "") -> None:
        """Print a line that is not wrapped; the style is that of the label, if there is one."""
        said = plain(text)
        if label:
            said = Text.assemble((visible(label), style), ": ") + said
        else:
            said.stylize(style)
        self.print(said, soft_wrap=True)


@contextmanager
def progress(
    console: Console, label: str, total: int, shown: bool = True
) -> Iterator[Callable[..., None]]:
    """A bar on a terminal; yields what counts parts that are done."""
    hidden = not (shown and console.is_terminal)
    with rich.progress.Progress(console=console, transient=True, disable=hidden) as bar:
        yield partial(bar.advance, bar.add_task(label, total=total))
