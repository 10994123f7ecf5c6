"""Arguments that have to be tensors."""

from __future__ import annotations

import numpy as np
from torch import Tensor


def require_tensors(**arguments: object) -> None:
    """Refuse what is no tensor; None passes.

    Args:
        **arguments: by the name that the caller knows.

    Raises:
        TypeError: naming the argument and how to make a tensor of it.
    """
    for name, value in arguments.items():
        if value is not None and not isinstance(value, Tensor):
            make = "torch.from_numpy" if isinstance(value, np.ndarray) else "torch.as_tensor"
            kind = f"{type(value).__module__}.{type(value).__qualname__}"
            kind = kind.removeprefix("builtins.")
            raise TypeError(f"{name} must be a torch.Tensor, got {kind}; pass {make}({name})")
