"""The help of `train.py` and `eval.py` in 80 columns: Hydra lists a group in one line."""

from __future__ import annotations

import contextlib
import io
import sys
import textwrap
from collections.abc import Iterator

from pcnn.escaping import say
from pcnn.experiment.command_line import program

COLUMNS = 80


@contextlib.contextmanager
def readable_help() -> Iterator[None]:
    """Where the command line asks for help, wrap what is printed, and name this very program."""
    if not {"--help", "-h"} & set(sys.argv[1:]):
        yield
        return
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            yield
    finally:
        text = printed.getvalue()
        for name in ("train", "eval"):
            text = text.replace(f"python {name}.py", program(name))
        for line in text.splitlines():
            say(wrapped(line))


def wrapped(line: str) -> str:
    """A line of at most 80 columns, and more that are indented below it."""
    if len(line) <= COLUMNS:
        return line
    return textwrap.fill(line, COLUMNS, subsequent_indent="  ", break_on_hyphens=False)
