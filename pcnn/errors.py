"""Mistakes that a user can mend: of a command line, a configuration or a file."""

from __future__ import annotations


class UserError(ValueError):
    """A mistake of what was given; the text names it and says what to do.

    `train.py` and `eval.py` show the text alone, in place of a traceback. This file imports
    nothing, so that a program that names the exception starts at once.
    """


class MissingPackageError(UserError, ImportError):
    """An optional package is not installed; the text says how to get it."""


def first_line(error: Exception) -> str:
    """The first line of an error's text, or its kind where it has none."""
    return (str(error).splitlines() or [type(error).__name__])[0]
