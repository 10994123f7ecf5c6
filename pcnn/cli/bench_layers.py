"""`pcnn bench layers`."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from pcnn.cli.bench_compare import print_comparisons
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

if TYPE_CHECKING:
    import torch


class Precision(str, Enum):
    """Dtypes on offer."""

    auto = "auto"
    float16 = "float16"
    bfloat16 = "bfloat16"
    tf32 = "tf32"
    float32 = "float32"
    float64 = "float64"

    def on(self, device: torch.device) -> str:
        """Name of the dtype on a device."""
        if self is not Precision.auto:
            return self.value
        return "float16" if device.type == "cuda" else "float32"


def layers(
    engine: Engines = None,
    workload: Workloads = None,
    layers: Annotated[
        list[str] | None,
        typer.Option(
            help="c_in:c_out:size or c_in:c_out:size:stride; several with commas, or repeated."
        ),
    ] = None,
    what: Annotated[
        list[str] | None,
        typer.Option(help="layer, train, map+layer or map+train; may be repeated. Default: all."),
    ] = None,
    figure: Annotated[
        list[str] | None,
        typer.Option(
            help="Figure of a paper, or 'all'; may be repeated. Default: the layers alone."
        ),
    ] = None,
    dtype: Annotated[
        Precision, typer.Option(help="auto: float16 on a GPU, float32 on a CPU.")
    ] = Precision.auto,
    device: Device = "auto",
    repeats: Repeats = 20,
    runs: Runs = 1,
    budget: Budget = 1.0,
    count: Count = True,
    peers: PeerFiles = None,
    only_peers: Annotated[
        bool, typer.Option("--only-peers", help="Measure only what the files of --peers contain.")
    ] = False,
    print_rows: PrintRows = True,
    out: Out = None,
) -> None:
    """Time single convolutions: forward and training, on an existing map and with a new one."""
    from pcnn.bench.layers.figures import FIGURES, PLAIN
    from pcnn.bench.layers.setting import KINDS, STANDARD, LayerShape, Setting
    from pcnn.bench.peers import places_of
    from pcnn.bench.suite import chosen_figures

    where = chosen_device(device)
    name = dtype.on(where)
    unknown = [kind for kind in what or () if kind not in KINDS]
    if unknown:
        raise typer.BadParameter(f"--what {unknown[0]}: must be one of {', '.join(KINDS)}")
    words = [word for text in layers or () for word in text.split(",")]
    names = [] if figure and "all" in figure else figure or [PLAIN]
    try:
        shapes = [LayerShape.parse(word) for word in words]
        chosen = chosen_figures(names, FIGURES)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    theirs = peers_of(peers)
    if only_peers and theirs is None:
        raise typer.BadParameter("--only-peers needs --peers")
    setting = Setting(
        where,
        scenes_of(workload),
        engines_of(engine),
        shapes or STANDARD,
        name,
        what or KINDS,
        repeats,
        runs,
        budget,
        count,
        places_of(theirs.rows) if only_peers and theirs else None,
    )
    header, measured = Run("layers", FIGURES, chosen, where, out, print_rows).measure(setting)
    if theirs is not None:
        print_comparisons(measured, header.device, theirs)
    stop_if_wrong(measured)
