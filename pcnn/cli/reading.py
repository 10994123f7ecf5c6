"""Options of commands that read files of points."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from pcnn.cli.app import refusing
from pcnn.ranges import Length, Positive

if TYPE_CHECKING:
    from pcnn.datasets.readers.channels import Reading

Columns = Annotated[
    str | None,
    typer.Option(
        help="Columns of .bin and .npy files: kitti, nuscenes, scannet, sunrgbd, or names, as in "
        "x,y,z,intensity,ring (_ passes one over, label holds labels)."
    ),
]
Fill = Annotated[
    list[str] | None,
    typer.Option(help="Number for a channel that a cloud lacks, as in intensity=0; repeat."),
]
Strict = Annotated[
    bool,
    typer.Option(
        "--strict",
        help="Refuse clouds with missing returns (NaN, zeros) in place of leaving "
        "these points out.",
    ),
]
IntensityMax = Annotated[
    Positive | None, typer.Option(help="The number in the files that is intensity 1.")
]
Scale = Annotated[
    Length, typer.Option(help="Metres in a unit of the files: 0.001 for millimetres, 0.3048 feet.")
]


MaxGib = Annotated[
    Positive | None,
    typer.Option(help="Largest size of a file, and of what it unpacks to in memory, in GiB; 8."),
]


def chosen_reading(
    reading: Reading,
    columns: str | None = None,
    fill: Sequence[str] | None = None,
    strict: bool = False,
    intensity_max: float | None = None,
    scale: float = 1.0,
    max_gib: float | None = None,
) -> Reading:
    """A reading with what the options say.

    Raises:
        typer.BadParameter: an option that says nothing of the kind.
    """
    from dataclasses import replace

    from pcnn.datasets.readers.channels import chosen_columns

    with refusing():
        return replace(
            reading,
            columns=reading.columns if columns is None else chosen_columns(columns),
            fill={**reading.fill, **filled(fill)},
            strict=reading.strict or strict,
            intensity_max=reading.intensity_max if intensity_max is None else intensity_max,
            scale=scale,
            max_gib=reading.max_gib if max_gib is None else max_gib,
        )


def filled(words: Sequence[str] | None) -> dict[str, float]:
    """Numbers by the names of their channels, of words such as ``intensity=0``.

    Raises:
        typer.BadParameter: another kind of word.
    """
    found: dict[str, float] = {}
    for word in words or ():
        name, _, number = word.partition("=")
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if not name.strip() or not math.isfinite(value):
            raise typer.BadParameter(f"--fill {word}: must be NAME=NUMBER, as in intensity=0")
        found[name.strip().lower()] = value
    return found
