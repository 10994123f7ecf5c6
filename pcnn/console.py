"""The console of rich that the project prints on: strings are text, never markup.

A file may be called ``x[/z]``, which rich would read as markup and fail at, or hold control
sequences, which a terminal would obey.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
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

    def on_broken_pipe(self) -> None:
        """Leave the error to `until_output_closes`, where rich would end with 1."""
        raise

    def say(self, text: object, label: str = "", style: str = "") -> None:
        """Print a line that is not wrapped; the style is that of the label, if there is one."""
        said = plain(text)
        if label:
            said = Text.assemble((visible(label), style), ": ") + said
        else:
            said.stylize(style)
        self.print(said, soft_wrap=True)


#: Seconds to the first line of a `Progress` that is no bar, and from one to the next.
FIRST, EVERY = 10.0, 30.0


class Progress:
    """How far some work is: a bar on a terminal, elsewhere a line now and then.

    The lines come by the clock, also while nothing gets done.
    """

    def __init__(self, console: Console, label: str, total: int) -> None:
        self._console, self._label, self._total = console, label, total
        self._done, self._began = 0, time.monotonic()
        self._bar = rich.progress.Progress(
            console=console, transient=True, disable=not console.is_terminal
        )
        self._bar.add_task(visible(label).replace("[", r"\["), total=total)
        self._over = Event()

    def __enter__(self) -> Progress:
        self._bar.start()
        if self._bar.disable:
            Thread(target=self._tell, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._bar.stop()

    def advance(self, parts: int = 1) -> None:
        """Count parts that are done."""
        self._done += parts
        self._bar.advance(self._bar.task_ids[0], parts)

    def _tell(self) -> None:
        wait = FIRST
        while not self._over.wait(wait):
            wait = EVERY
            said = f"{self._label}: {self._done} of {self._total}"
            if self._done:
                seconds = (time.monotonic() - self._began) / self._done
                said += f", {duration(seconds * (self._total - self._done))} left"
            self._console.say(said)


def duration(seconds: float) -> str:
    """Hours, minutes and seconds, as ``1:02:03`` and ``2:03``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


@contextmanager
def until_output_closes() -> Iterator[None]:
    """End the process as SIGPIPE would where nobody reads its output any more, as behind `head`."""
    try:
        yield
    except BrokenPipeError:
        closed = [stream for stream in (1, 2) if _is_closed(stream)]
        if not closed:
            raise
        nothing = os.open(os.devnull, os.O_WRONLY)
        for stream in closed:  # what is still buffered goes there
            os.dup2(nothing, stream)
        raise SystemExit(141) from None


def _is_closed(stream: int) -> bool:
    poll = select.poll()
    poll.register(stream, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))
