"""`pcnn sixfold`: figures of S3DIS over runs that tested on different areas."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pcnn.cli.app import refusing


def sixfold(
    runs: Annotated[list[Path], typer.Argument(help="Run folders of train.py or eval.py.")],
    output: Annotated[Path | None, typer.Option(help="JSON file to write the figures to.")] = None,
) -> None:
    """Join runs of dataset=s3dis, one per test area: mIoU of each area, and of all points.

    One run per area: python train.py dataset=s3dis 'dataset.test_areas=[1]', and so on.
    """
    import json

    from pcnn.console import Console
    from pcnn.experiment.run_folder import write_whole
    from pcnn.experiment.six_fold import as_json, join, table, title
    from pcnn.metrics import iou_table

    with refusing():
        joined = join(runs)
    console = Console()
    for which in joined.passes:
        console.print(table(joined, which))
        names, heading = list(joined.class_names), f"{joined.name}, {title(which)}"
        console.print(iou_table(joined.total(which), names, heading))
    if joined.missing:
        areas = ", ".join(map(str, joined.missing))
        noun = "area" if len(joined.missing) == 1 else "areas"
        console.print(
            f"no run tested on {noun} {areas}: these are not 6-fold figures", style="bold"
        )
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        write_whole(output, json.dumps(as_json(joined), indent=2) + "\n")
