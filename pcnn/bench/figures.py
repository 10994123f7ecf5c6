"""Figures of all suites, for what is done with any result file."""

from __future__ import annotations

from typing import Any

from pcnn.bench.layers.figures import FIGURES as LAYERS
from pcnn.bench.mapping.figures import FIGURES as MAPPING
from pcnn.bench.native.figures import FIGURES as DEVICE_LAYOUTS
from pcnn.bench.networks.figures import FIGURES as NETWORKS
from pcnn.bench.suite import Figure

FIGURES: tuple[Figure[Any], ...] = (*MAPPING, *LAYERS, *NETWORKS, *DEVICE_LAYOUTS)
