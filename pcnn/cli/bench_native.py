"""`pcnn bench native`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pcnn.cli.bench_compare import print_comparisons
from pcnn.cli.bench_layers import Precision
from pcnn.cli.bench_options import (
    Budget,
    Count,
    Device,
    Out,
    PeerFiles,
    PrintRows,
    Repeats,
    Runs,
    console_of_width,
    peers_of,
)
from pcnn.cli.bench_run import Run, stop_if_wrong
from pcnn.cli.device import chosen_device
from pcnn.ranges import NonNegative, Positive, Rooms, Sample, Thousands, Width

if TYPE_CHECKING:
    from pcnn.bench.native.cloud import Cloud


def native(
    figure: Annotated[
        list[str] | None,
        typer.Option(
            help="fig3, fig4, fig5 or figJ of PointCNN++; layers, triplets, groups, dataflows, "
            "same_t, memory or step20m; may be repeated. Default: all."
        ),
    ] = None,
    cloud: Annotated[
        list[str] | None,
        typer.Option(
            help="Points: file.npz, file.npz:name or file.npz:name@grid, a grid in metres; may be "
            "repeated. Default: simulated rooms, which fig3, fig4, fig5, figJ and step20m use."
        ),
    ] = None,
    line: Annotated[
        list[str] | None,
        typer.Option(
            help="voxel, degraded, native, torchsparse, minuet or pointcnnpp; may be repeated. "
            "Default: all."
        ),
    ] = None,
    dtype: Annotated[
        Precision,
        typer.Option(
            help="Dtype of training under autocast. auto: float16 on a GPU, float32 on a CPU."
        ),
    ] = Precision.auto,
    rooms: Annotated[Rooms, typer.Option(help="Simulated rooms; the paper has 10.")] = 10,
    sizes: Annotated[
        str, typer.Option(help="Sizes of growing rooms in thousands of points, such as 20,50,100.")
    ] = "20,50,100,300,1000",
    device: Device = "auto",
    repeats: Repeats = 10,
    runs: Runs = 1,
    budget: Budget = 1.0,
    limit: Annotated[
        NonNegative, typer.Option(help="Seconds after which a figure starts no further row.")
    ] = 600.0,
    memory: Annotated[
        Positive | None,
        typer.Option(help="Memory that figJ may use, in GB. Default: all of the device."),
    ] = None,
    largest: Annotated[
        Thousands, typer.Option(help="Largest cloud of figJ, in thousands of points.")
    ] = 400_000,
    step: Annotated[
        Thousands, typer.Option(help="Cloud of step20m, in thousands of points.")
    ] = 20_000,
    check: Annotated[
        Sample, typer.Option(help="Points of the room that networks are verified on.")
    ] = 50_000,
    width: Annotated[Width, typer.Option(help="Factor on the channels of ResNet18.")] = 1.0,
    count: Count = False,
    peers: PeerFiles = None,
    print_rows: PrintRows = True,
    out: Out = None,
) -> None:
    """Time convolution on native points beside voxels: layers, ResNet18, triplets and memory."""
    from pcnn.bench.best_times import comparison_table
    from pcnn.bench.native.figures import FIGURES, full_names
    from pcnn.bench.native.lines import named_lines
    from pcnn.bench.native.setting import Setting
    from pcnn.bench.peers import SAME_SIZE, same_size
    from pcnn.bench.suite import chosen_figures
    from pcnn.cli.bench_networks import MOST_THOUSANDS, integers

    where = chosen_device(device)
    name = dtype.on(where)
    try:
        chosen = chosen_figures(full_names(figure or ()), FIGURES)
        lines = named_lines(line or (), where)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    theirs = peers_of(peers)
    setting = Setting(
        where,
        lines,
        _clouds(cloud),
        name,
        rooms,
        [1000 * size for size in integers("--sizes", sizes, MOST_THOUSANDS)],
        repeats,
        budget,
        limit,
        count,
        check,
        1000 * largest,
        1000 * step,
        memory,
        width,
    )
    header, measured = Run("native", FIGURES, chosen, where, out, print_rows, runs).measure(setting)
    if theirs is not None:
        print_comparisons(measured, header.device, theirs)
    ratios = same_size(measured)
    if ratios:
        table = comparison_table(SAME_SIZE, ratios, header.device, header.device)
        console_of_width().print(table)
    stop_if_wrong(measured)


def _clouds(words: list[str] | None) -> list[Cloud]:
    from pcnn.bench.native.cloud import load_clouds

    try:
        return [cloud for word in words or () for cloud in load_clouds(word)]
    except (FileNotFoundError, ValueError) as error:
        raise typer.BadParameter(f"--cloud: {error}") from error
