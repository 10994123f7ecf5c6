"""Mistakes that a user can mend: of a command line, a configuration or a file."""

from __future__ import annotations


class UserError(ValueError):
    """A mistake of what was given; the text names it and says what to do.

    `train.py` and `eval.py` show the text alone, in place of a traceback. This file imports
    nothing, so that a program that names the exception starts at once.
    """


class MissingPackageError(UserError, ImportError):
    """An optional package is not installed; the text says how to get it."""


class FileError(UserError):
    """A file that cannot be read, because it breaks its format or the disk refuses it.

    Every reader raises this one type, whatever the library underneath throws: work on many files
    catches it, names the file, and goes on with the others.

    Args:
        path: the file.
        rule: which rule it breaks, and what to do.
    """

    def __init__(self, path: object, rule: str) -> None:
        super().__init__(path, rule)
        self.path = path
        self.rule = rule

    def __str__(self) -> str:
        return f"{self.path}: {self.rule}"


class MissingFileError(FileError, FileNotFoundError):
    """A file that is not there."""

    def __str__(self) -> str:
        return f"{self.path}: {self.rule}"


#: What work on many files catches: a file that cannot be read, or a package that its format needs.
UNREADABLE = (FileError, MissingPackageError)


def first_line(error: Exception) -> str:
    """The first line of an error's text, or its kind where it has none."""
    return (str(error).splitlines() or [type(error).__name__])[0]
