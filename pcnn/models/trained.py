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
        Entries of the catalogue (`pcnn.experiment.catalogue.Weights`): version, task, SHA-256,
        licence, source, classes and size.
    """
    found: Mapping[str, Any] = _room("trained").available()
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
        FileNotFoundError: no such file or name, or one that is not on this machine; the message
            says which command fetches or trains it.
        FileError: a torn file, or another one than the catalogue says.
    """
    net: nn.Module = _room("trained").load(model, device, allow_targets)
    return net


def push_to_hub(
    checkpoint: str | Path,
    repository: str,
    *,
    licence: str,
    card: str = "",
    private: bool = False,
    token: str | None = None,
) -> str:
    """Export the network of a checkpoint and upload it to the Hugging Face hub, with a card.

    The file names no folders of this machine (`pcnn export`).

    Args:
        checkpoint: of a run, or an exported file.
        repository: ``user/name``; made where there is none.
        licence: of the weights, as the hub writes it (``apache-2.0``).
        card: text for the card, in front of the record of the training.
        private: whether a new repository is private.
        token: of the hub; None takes the one of its login.

    Returns:
        Where the commit is shown.

    Raises:
        MissingPackageError: `huggingface_hub` is not installed.
        UserError: the hub refuses, or does not answer.
    """
    url: str = _room("hub").push_to_hub(
        checkpoint, repository, licence=licence, card=card, private=private, token=token
    )
    return url


def from_hub(repository: str, revision: str | None = None, token: str | None = None) -> Path:
    """Fetch a network from the Hugging Face hub into its cache.

    Args:
        repository: ``user/name``.
        revision: branch, tag or commit; a commit is always the same file.
        token: of the hub; None takes the one of its login.

    Returns:
        The file; `load`, `pcnn.predict` and all commands take it.

    Raises:
        MissingPackageError: `huggingface_hub` is not installed.
        UserError: the hub refuses or does not answer, or the file is no exported network.
    """
    path: Path = _room("hub").from_hub(repository, revision, token)
    return path


def _room(name: str) -> Any:
    return import_module(f"pcnn.experiment.{name}")
