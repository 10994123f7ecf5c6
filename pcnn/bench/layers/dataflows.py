"""Engines of single figures: one dataflow in several settings, each with its label.

A new setting is one line here.
"""

from __future__ import annotations

from collections.abc import Mapping

from pcnn.ops.engine import Engine

#: An engine, and the settings that tell its rows from others'.
Entry = tuple[Engine, Mapping[str, int | float | str]]
