"""`pcnn height-range`: what height and range alone tell about the classes of a scan."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pcnn.cli.app import refusing
from pcnn.ranges import Length, Sequence


def height_range(
    train: Annotated[Path, typer.Argument(help="Folder with the sequences/ to count.")],
    test: Annotated[Path, typer.Argument(help="Folder with the sequences/ to test on.")],
    train_sequences: Annotated[
        list[Sequence] | None,
        typer.Option(help="Default: those that exist of 00-07, 09, 10."),
    ] = None,
    test_sequences: Annotated[list[Sequence] | None, typer.Option(help="Default: 08.")] = None,
    crop: Annotated[
        Length | None, typer.Option(help="Count and test only within this distance, in metres.")
    ] = None,
    labels: Annotated[str, typer.Option(help="official or spvnas_compat.")] = "official",
    out: Annotated[Path | None, typer.Option(help="Write the figures as JSON.")] = None,
) -> None:
    """Label scans by a histogram of classes over height and range, a baseline for networks.

    Both folders have SemanticKITTI's layout. Count the scans that the network was trained on.
    """
    from pcnn.console import Console
    from pcnn.experiment.height_range import compare

    with refusing():
        compare(train, test, train_sequences, test_sequences, crop, labels, out, Console())
