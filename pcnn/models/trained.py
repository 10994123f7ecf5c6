"""Trained networks by name.

The catalogue and checkpoints are read by the rooms above this one, which dotted names lead to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import nn


def available() -> Mapping[str, Any]:
    """Trained weights by name.

    Returns:
        Entries of the catalogue (`pcnn.experiment.catalogue.Weights`): version, task, licence,
        source and classes.
    """
    found: Mapping[str, Any] = _room("catalogue").catalogue()
    return found


def load(
    model: str | Path, device: torch.device | str = "cpu", allow_targets: Sequence[str] = ()
) -> nn.Module:
    """Make a trained network, in evaluation mode.

    It takes a `SparseTensor` of the channels, the voxel size and the unit that it was trained on;
    `pcnn.predict` takes points and sees to these.

    Args:
        model: a name of `available`, or a checkpoint.
        device: where it computes.
        allow_targets: packages of the user's own whose classes a checkpoint may name.

    Raises:
        FileNotFoundError: no such file or name.
        FileError: a damaged file.
    """
    net: nn.Module = _room("networks").load(model, device, allow_targets)
    return net


def _room(name: str) -> Any:
    return import_module(f"pcnn.experiment.{name}")
