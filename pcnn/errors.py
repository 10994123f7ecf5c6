"""Mistakes that a user can mend: of a command line, a configuration or a file."""

from __future__ import annotations


class UserError(ValueError):
    """A mistake of what was given; the text names it and the rule.

    `train.py` and `eval.py` show the text alone, in place of a traceback. This file imports
    nothing heavy, so that a program that names the exception starts at once.
    """


class ConfigError(UserError):
    """A value of a configuration or of a command line that cannot be used."""

    def __init__(self, key: str, rule: str) -> None:
        super().__init__(key, rule)
        self.key = key
        self.rule = rule

    def __str__(self) -> str:
        return f"{self.key}: {self.rule}" if self.key else self.rule


class DenseCloudError(UserError):
    """Neighbours of points that take more memory than they may."""


class MissingPackageError(UserError, ImportError):
    """An optional package is not installed; the text says how to get it."""


class FileError(UserError):
    """A file that cannot be read, because it breaks its format or the disk refuses it.

    Every reader raises this one type, whatever the library underneath throws: work on many files
    catches it, names the file, and goes on with the others.
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


#: Errors that work on many files catches: unreadable files, and packages that a format needs.
UNREADABLE = (FileError, MissingPackageError)


class NotFiniteError(UserError, FloatingPointError):
    """A network, or its training, gives NaN or infinite numbers; the text says where."""


class RunWarning(UserWarning):
    """A warning about the worth of a run's figures."""


def first_line(error: Exception) -> str:
    """The first line of an error's text, or its kind where it has none."""
    return (str(error).splitlines() or [type(error).__name__])[0]
