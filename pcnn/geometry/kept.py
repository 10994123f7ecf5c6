"""Tensors that a geometry keeps, and that training may meet after inference has made them."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch


def kept() -> AbstractContextManager[object]:
    """Where sites, maps and layouts are made that stay: outside of `torch.inference_mode`.

    Autograd refuses tensors made inside of it, so a cloud that was evaluated first could not be
    trained on.
    """
    if torch.is_inference_mode_enabled():
        return torch.inference_mode(False)
    return nullcontext()
