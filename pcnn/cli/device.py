"""The option --device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from pcnn.plural import counted

if TYPE_CHECKING:
    import torch


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
