"""`pcnn bench`: results are verified, then timed, into a result file."""

from __future__ import annotations

import typer

from pcnn.cli.bench_compare import charts, compare, join
from pcnn.cli.bench_data import data
from pcnn.cli.bench_layers import layers
from pcnn.cli.bench_mapping import mapping
from pcnn.cli.bench_native import native
from pcnn.cli.bench_networks import networks

app = typer.Typer(
    no_args_is_help=True, help="Time maps, layers and networks; results are verified before timing."
)
for command in (mapping, layers, networks, native, data, join, charts, compare):
    app.command()(command)
