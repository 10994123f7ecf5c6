"""Mistakes that a user can mend: of a command line, a configuration or a file."""

from __future__ import annotations


class UserError(ValueError):
    """A mistake of what was given; the text names it and says what to do.

    `train.py` and `eval.py` show the text alone, in place of a traceback. This file imports
    nothing, so that a program that names the exception starts at once.
    """
