"""The `pcnn` command: one file a subcommand, mounted here.

Subcommands import torch and everything else heavy inside their functions, so that help is instant.
"""

from __future__ import annotations

from typing import Annotated

import typer

from pcnn.cli.app import App
from pcnn.cli.bench import app as bench_app
from pcnn.cli.calibrate import calibrate
from pcnn.cli.convert import convert
from pcnn.cli.doctor import doctor
from pcnn.cli.download import download
from pcnn.cli.export import export
from pcnn.cli.gain import gain
from pcnn.cli.ground_truth import kitti_gt, make_gt
from pcnn.cli.height_range import height_range
from pcnn.cli.predict import predict
from pcnn.cli.preprocess import app as preprocess_app
from pcnn.cli.programs import evaluate, train
from pcnn.cli.register import describe, register
from pcnn.cli.report import report
from pcnn.cli.simulate import app as simulate_app
from pcnn.cli.sixfold import sixfold
from pcnn.cli.stats import stats
from pcnn.cli.tune import tune
from pcnn.cli.view import view
from pcnn.cli.warmup import warmup
from pcnn.escaping import say

app = App()
app.add_typer(bench_app, name="bench")
app.add_typer(preprocess_app, name="preprocess")
app.add_typer(simulate_app, name="simulate")
# their words are Hydra's, --help among them
hydra_words = {"ignore_unknown_options": True, "help_option_names": []}
app.command("train", context_settings=hydra_words)(train)
app.command("eval", context_settings=hydra_words)(evaluate)
for command in (
    *(predict, view, report, register, describe, doctor, download, export, convert, stats, tune),
    *(warmup, make_gt, kitti_gt, gain, calibrate, sixfold, height_range),
):
    app.command()(command)


def print_version(wanted: bool) -> None:
    """Print the version and stop."""
    if wanted:
        from pcnn import __version__

        say(f"pcnn {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=print_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Point-cloud networks: train, evaluate, label and register clouds, measure."""
