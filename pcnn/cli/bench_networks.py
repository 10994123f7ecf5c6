"""`pcnn bench networks`."""

from __future__ import annotations

from typing import Annotated

import typer

from pcnn.cli.bench_compare import print_comparisons
from pcnn.cli.bench_layers import Precision
from pcnn.cli.bench_options import (
    Budget,
    Count,
    Device,
    Engines,
    Out,
    PeerFiles,
    PrintRows,
    Repeats,
    Runs,
    Workloads,
    engines_of,
    peers_of,
    scenes_of,
)
from pcnn.cli.bench_run import Run, stop_if_wrong
from pcnn.cli.device import chosen_device
from pcnn.ranges import Sample, Width

#: Largest scene in thousands of voxels, or cloud in thousands of points.
MOST_THOUSANDS = 10**6


def networks(
    engine: Engines = None,
    workload: Workloads = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="sparse_resnet, sparse_resnet_large or minkunet; may be repeated. Default: all."
        ),
    ] = None,
    mode: Annotated[
        list[str] | None,
        typer.Option(
            help="infer and train (from shuffled cells), forward and step (on planned input); "
            "may be repeated. Default: all."
        ),
    ] = None,
    figure: Annotated[
        list[str] | None,
        typer.Option(
            help="Figure of a paper, or 'all'; may be repeated. Default: the networks alone."
        ),
    ] = None,
    dtype: Annotated[
        Precision,
        typer.Option(
            help="Dtype of training under autocast. auto: float16 on a GPU, float32 on a CPU."
        ),
    ] = Precision.auto,
    width: Annotated[Width, typer.Option(help="Factor on all channels; the papers have 1.")] = 1.0,
    device: Device = "auto",
    repeats: Repeats = 22,
    runs: Runs = 1,
    budget: Budget = 3.0,
    count: Count = True,
    check_voxels: Annotated[
        Sample, typer.Option(help="Larger scenes are verified on this many of their voxels.")
    ] = 200_000,
    sizes: Annotated[
        str,
        typer.Option(help="Sizes of generated scenes in thousands of voxels, such as 10,50,100."),
    ] = "10,50,100,500,1000",
    kernel_sizes: Annotated[str, typer.Option(help="Kernel sizes of spira_table4.")] = "3,7,13",
    peers: PeerFiles = None,
    print_rows: PrintRows = True,
    out: Out = None,
) -> None:
    """Time networks: inference and training steps, from shuffled cells and on planned input."""
    from pcnn.bench.layers.setting import MOST_SIZE
    from pcnn.bench.networks.figures import FIGURES, PLAIN
    from pcnn.bench.networks.measured import Setting
    from pcnn.bench.networks.models import MODELS
    from pcnn.bench.networks.work import MODES
    from pcnn.bench.suite import chosen_figures

    where = chosen_device(device)
    name = dtype.on(where)
    for option, words, known in (("--model", model, MODELS), ("--mode", mode, MODES)):
        unknown = [word for word in words or () if word not in known]
        if unknown:
            raise typer.BadParameter(f"{option} {unknown[0]}: must be one of {', '.join(known)}")
    names = [] if figure and "all" in figure else figure or [PLAIN]
    try:
        chosen = chosen_figures(names, FIGURES)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    theirs = peers_of(peers)
    setting = Setting(
        where,
        scenes_of(workload),
        engines_of(engine),
        model or tuple(MODELS),
        mode or MODES,
        name,
        width,
        repeats,
        runs,
        budget,
        count,
        check_voxels,
        [1000 * size for size in integers("--sizes", sizes, MOST_THOUSANDS)],
        integers("--kernel-sizes", kernel_sizes, MOST_SIZE),
    )
    header, measured = Run("networks", FIGURES, chosen, where, out, print_rows).measure(setting)
    if theirs is not None:
        print_comparisons(measured, header.device, theirs)
    stop_if_wrong(measured)


def integers(option: str, text: str, most: int) -> list[int]:
    """Numbers of an option, separated by commas.

    Raises:
        typer.BadParameter: something else, or a number above `most`.
    """
    parts = text.split(",")
    if not all(part.isdecimal() and 0 < int(part) <= most for part in parts):
        raise typer.BadParameter(
            f"{option} {text}: must be whole numbers from 1 to {most:,}, such as 10,50"
        )
    return [int(part) for part in parts]
