"""The papers' figures on single layers, each measured anew on the scenes at hand."""

from __future__ import annotations

from pcnn.bench.layers.charts import over_layers
from pcnn.bench.layers.measured import layer_rows
from pcnn.bench.layers.setting import Setting
from pcnn.bench.suite import Figure

#: What is measured unless a figure is asked for by name.
PLAIN = "layers"

FIGURES: tuple[Figure[Setting], ...] = (
    Figure(PLAIN, "single convolutions", "", layer_rows, over_layers, "a layer"),
)
