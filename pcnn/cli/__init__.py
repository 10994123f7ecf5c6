"""The `pcnn` command."""

from __future__ import annotations

from pcnn.cli.main import app, main

__all__ = ["app", "main"]
