"""Dataflows worth trying on a device."""

from __future__ import annotations

import torch

from pcnn.dataflows import Automatic, Dataflow


def default_candidates(device: torch.device) -> tuple[Dataflow, ...]:
    """What `pcnn.tune` tries unless told otherwise; the first is what an untuned layer uses.

    Args:
        device: where the layers run; a CPU has one quick dataflow.
    """
    return (Automatic().on(device),)
