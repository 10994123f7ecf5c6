"""From a composed configuration to a trained, evaluated and recorded run."""

from __future__ import annotations

from pcnn.experiment.errors import ConfigError, short_errors

__all__ = ["ConfigError", "short_errors"]
