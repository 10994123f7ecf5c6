"""The precision of a network without a trainer, by the name of a trainer's, as `16-mixed`."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

#: Autocast dtype of the trainer's precisions.
AUTOCAST = {"16-mixed": "float16", "bf16-mixed": "bfloat16"}
#: Dtype of weights and features of the others.
PURE = {"16-true": "float16", "bf16-true": "bfloat16", "64-true": "float64"}


def autocast(precision: str, device: torch.device) -> AbstractContextManager[Any]:
    """The autocast under which a network of this precision runs."""
    import torch

    if precision not in AUTOCAST:
        return nullcontext()
    return torch.autocast(device.type, getattr(torch, AUTOCAST[precision]))


def dtype_of(precision: str) -> torch.dtype:
    """Dtype of the weights of a network of this precision."""
    import torch

    dtype: torch.dtype = getattr(torch, PURE.get(precision, "float32"))
    return dtype
