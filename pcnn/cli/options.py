"""Options that several commands have, and their values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pcnn.cli.app import ARGUMENT, refusing
from pcnn.messages import counted

if TYPE_CHECKING:
    import torch
    from omegaconf import DictConfig

    from pcnn.datasets.readers.clouds import Reading

Overrides = Annotated[
    list[str],
    ARGUMENT,
    "An experiment of conf/experiment, then options of pcnn train such as dataset=kitti.",
]
Conf = Annotated[Path | None, "Folder of configurations; those of the package unless given."]
Columns = Annotated[
    str | None,
    "Columns of .bin and .npy files: kitti, nuscenes, scannet, sunrgbd, or names, as in "
    "x,y,z,intensity,ring (_ passes one over, label holds labels).",
]
AllowTargets = Annotated[
    list[str] | None,
    "Package of your own whose classes the checkpoint may name besides pcnn's; repeat.",
]
Device = Annotated[str, "cpu, cuda, cuda:1, or auto."]
Progress = Annotated[bool, "Show progress."]
Open = Annotated[bool, "--open", "Show the page in the browser."]


def composed(overrides: Sequence[str], conf: Path | None) -> DictConfig:
    """The checked configuration of pcnn train; the first word may name an experiment."""
    from hydra import compose, initialize_config_dir

    from pcnn.config import check_allowed
    from pcnn.experiment.run_config import allowed, checked
    from pcnn.programs import CONF

    folder = conf or CONF
    if not (folder / "train.yaml").is_file():
        raise typer.BadParameter(f"--conf {folder}: no train.yaml is in it")
    words = list(overrides)
    if words and "=" not in words[0]:
        words[0] = f"experiment={words[0]}"
    with initialize_config_dir(str(folder.resolve()), version_base="1.3"):
        cfg = compose("train", words)
        check_allowed(allowed(cfg), words)
        return checked(cfg)


def chosen_reading(
    reading: Reading,
    columns: str | None = None,
    fill: Sequence[str] | None = None,
    intensity_max: float | None = None,
    scale: float | None = None,
) -> Reading:
    """A reading with what the options say."""
    from dataclasses import replace

    from pcnn.datasets.readers.clouds import chosen_columns

    with refusing():
        return replace(
            reading,
            columns=reading.columns if columns is None else chosen_columns(columns),
            fill=reading.filled(filled(fill)),
            intensity_max=reading.intensity_max if intensity_max is None else intensity_max,
            scale=reading.scale if scale is None else scale,
        )


def filled(words: Sequence[str] | None) -> dict[str, float]:
    """Numbers by the names of their channels, of words such as ``intensity=0``."""
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


def each(name: str, files: Sequence[Path] | None, n: int) -> list[Path | None]:
    """The file of every cloud that an option names, None where it is not given."""
    if files and len(files) != n:
        told = f"{counted(len(files), 'file')} for {counted(n, 'cloud')}"
        raise typer.BadParameter(f"--{name}: {told}")
    return list(files) if files else [None] * n


def packages(given: Sequence[str] | None) -> tuple[str, ...]:
    from pcnn.config import check_allowed

    with refusing():
        check_allowed(given or (), ["allow_targets="])
    return tuple(given or ())


def chosen_device(name: str) -> torch.device:
    """Device of a name; ``auto`` is the first GPU, else the CPU."""
    import torch

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        device = torch.device("meta")  # which is refused, too
    if device.type not in ("cpu", "cuda"):
        raise typer.BadParameter(f"--device {name}: must be cpu, cuda, cuda:1 or auto")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise typer.BadParameter(
            f"--device {name}: torch sees {counted(torch.cuda.device_count(), 'CUDA device')} "
            "(pcnn doctor says more)"
        )
    return device
