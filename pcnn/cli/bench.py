"""`pcnn bench`: results are verified, then timed, into a result file."""

from __future__ import annotations

from pcnn.cli.app import App
from pcnn.cli.bench_compare import charts, compare, join
from pcnn.cli.bench_data import data
from pcnn.cli.bench_layers import layers
from pcnn.cli.bench_mapping import mapping
from pcnn.cli.bench_native import native
from pcnn.cli.bench_networks import networks

app = App(help="Time maps, layers and networks, after a check that their results are right.")
for command in (mapping, layers, networks, native, data, join, charts, compare):
    app.command()(command)
