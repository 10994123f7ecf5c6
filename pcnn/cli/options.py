"""Options that several commands have, and their values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from pcnn.cli.app import refusing
from pcnn.plural import counted
from pcnn.ranges import Length, Positive

if TYPE_CHECKING:
    import torch

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


AllowTargets = Annotated[
    list[str] | None,
    typer.Option(
        help="Package whose classes the checkpoint may name besides pcnn's: code of your own that "
        "you trust; repeat."
    ),
]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1, or auto.")]


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
            fill=reading.filled(filled(fill)),
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


def packages(given: Sequence[str] | None) -> tuple[str, ...]:
    """The packages of the option.

    Raises:
        typer.BadParameter: one is no dotted name.
    """
    from pcnn.experiment.targets import check_packages

    with refusing():
        check_packages(given or ())
    return tuple(given or ())


def chosen_device(name: str) -> torch.device:
    """Device of a name; ``auto`` is the first GPU, else the CPU.

    Raises:
        typer.BadParameter: no device of that name, or not on this machine.
    """
    import torch

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise typer.BadParameter(f"--device {name}: must be cpu, cuda, cuda:1 or auto") from error
    if device.type not in ("cpu", "cuda"):
        raise typer.BadParameter(f"--device {name}: must be cpu, cuda, cuda:1 or auto")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise typer.BadParameter(
            f"--device {name}: torch sees {counted(torch.cuda.device_count(), 'CUDA device')} "
            "(pcnn doctor says more)"
        )
    return device
