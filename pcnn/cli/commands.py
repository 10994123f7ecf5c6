"""The `pcnn` command: subcommands of the other files, mounted here.

Subcommands import torch and everything else heavy inside their functions, so that help is instant.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

import pcnn.programs
from pcnn.cli.app import App
from pcnn.cli.doctor import doctor
from pcnn.cli.predict import predict
from pcnn.cli.preprocess import preprocess
from pcnn.cli.profile import profile
from pcnn.cli.register import register
from pcnn.cli.simulate import app as simulate_app
from pcnn.cli.tune import tune
from pcnn.cli.view import report, view
from pcnn.cli.weights import convert, export
from pcnn.messages import say

Words = Annotated[
    list[str] | None,
    typer.Argument(help="GROUP=OPTION and KEY=VALUE; --help lists the groups.", metavar="WORDS"),
]
#: Words of these commands are Hydra's, --help among them.
HYDRA = {"ignore_unknown_options": True, "help_option_names": []}
LAST = "logs/segmentation/RUN/checkpoints/best.ckpt"

app = App()


@app.command("train", context_settings=HYDRA)
def train(words: Words = None) -> None:
    """Train a network: pcnn train model=minkunet dataset=kitti."""
    run("train", words or [])


@app.command("eval", context_settings=HYDRA)
def evaluate(words: Words = None) -> None:
    """Evaluate a checkpoint: pcnn eval ckpt_path=FILE."""
    run("eval", words or [])


def run(name: str, words: list[str]) -> None:
    """Run a program of the package as if its file had been started, which `ddp` does again."""
    sys.argv = [str(Path(pcnn.programs.__file__).with_name(f"{name}.py")), *words]
    import_module(f"pcnn.programs.{name}").run()


app.add(predict, f"pcnn predict scan.bin --model {LAST}")
app.add(register, "pcnn register a.ply b.ply c.ply --graph")
app.add(view, "pcnn view scan.bin --labels predictions/scan.label --open")
app.add(report, "pcnn report logs/segmentation/RUN --out run.html")
app.add(doctor, "pcnn doctor")
app.add(tune, "pcnn tune model=minkunet dataset=kitti")
app.add(profile, "pcnn profile seg_streets --trace trace.json")
app.add(export, f"pcnn export {LAST} net.safetensors")
app.add(convert, "pcnn convert init.pt --from torchsparse --model minkunet")
app.add(preprocess, "pcnn preprocess dataset=kitti dataset.root=data/kitti --workers 8")
app.add_typer(simulate_app, name="simulate")


def print_version(wanted: bool) -> None:
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
