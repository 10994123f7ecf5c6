"""Words for people. Text from outside, as file names, is printed escaped and never obeyed.

Names of files, contents of files and messages of libraries reach a terminal by consoles, logging,
warnings and plain lines. `escaped_output` covers the first three for a whole program, `say` prints
a line. This file imports nothing heavy.
"""

from __future__ import annotations

import logging
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

#: The distribution; ``pcnn`` on the Python package index is another project.
DISTRIBUTION = "pcnn3d"
#: Control characters (C0 but line feed and tab, DEL, C1), what turns the direction of text, and
#: bytes of file names that are no UTF-8.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: object) -> str:
    r"""The text with control characters as they are written in Python: ``\x1b``."""
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], str(text))


def say(text: object, error: bool = False) -> None:
    """Print a line on standard output, or on standard error."""
    print(visible(text), file=sys.stderr if error else sys.stdout, flush=True)


@contextmanager
def escaped_output() -> Iterator[None]:
    """Let log records and warnings of the block be printed with control characters escaped."""
    factory, formatwarning = logging.getLogRecordFactory(), warnings.formatwarning
    logging.setLogRecordFactory(_Record)
    warnings.formatwarning = _warning_text
    try:
        yield
    finally:
        logging.setLogRecordFactory(factory)
        warnings.formatwarning = formatwarning


class _Record(logging.LogRecord):
    def getMessage(self) -> str:
        return visible(super().getMessage())


def _warning_text(message: Warning | str, *_: Any, **more: Any) -> str:
    return f"warning: {visible(message)}\n"


def counted(number: int, thing: str, things: str | None = None) -> str:
    """A number with its noun, as in ``1 cloud`` and ``2 clouds``."""
    return f"{number:,} {thing if number == 1 else things or thing + 's'}"


def install(extra: str) -> str:
    """The command that adds an extra to the environment that this package is installed in."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"
