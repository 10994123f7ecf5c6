"""The error of a file that breaks its format, by its earlier name."""

from __future__ import annotations

from pcnn.errors import FileError

CloudFileError = FileError
