"""Memory with guards around every tensor that a builder or a plan allocates, on any device."""

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from pcnn import maps
from pcnn.ops import device_plan, sites

#: Elements on either side; a multiple of 16 bytes for every dtype, so alignment stays.
GUARD = 64
CANARY = -123456789
POISON = torch.iinfo(torch.int32).min

#: Every module of the maps that allocates by itself.
ALLOCATING = [
    module
    for info in pkgutil.iter_modules(maps.__path__, f"{maps.__name__}.")
    if hasattr(module := importlib.import_module(info.name), "torch")
]


def canary_of(dtype: torch.dtype) -> int:
    """The value in guards."""
    return CANARY & torch.iinfo(dtype).max if dtype.itemsize < 4 else CANARY


@contextmanager
def guarded(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Poison what builders allocate, and see at the end that nothing around it was written."""
    kept: list[tuple[torch.Tensor, int]] = []

    def allocate(fill: int | None, *args: Any, **kwargs: Any) -> torch.Tensor:
        if kwargs.get("pin_memory"):  # of the host, for a copy
            return torch.empty(*args, **kwargs)
        shape = torch.Size(args[0] if isinstance(args[0], (tuple, torch.Size)) else args)
        size, device = (shape.numel() + 2 * GUARD,), kwargs.get("device")
        dtype = kwargs["dtype"]
        whole = torch.full(size, canary_of(dtype), dtype=dtype, device=device)
        kept.append((whole, shape.numel()))
        inside = whole[GUARD : GUARD + shape.numel()]
        poison = max(POISON, torch.iinfo(dtype).min)
        return inside.fill_(poison if fill is None else fill).view(shape)

    class Guarded:
        """torch, with three of its functions replaced."""

        empty = staticmethod(lambda *args, **kwargs: allocate(None, *args, **kwargs))
        zeros = staticmethod(lambda *args, **kwargs: allocate(0, *args, **kwargs))
        full: Callable[..., torch.Tensor] = staticmethod(
            lambda shape, value, **kwargs: allocate(value, shape, **kwargs)
        )

        @staticmethod
        def empty_like(tensor: torch.Tensor) -> torch.Tensor:
            return allocate(None, tensor.shape, dtype=tensor.dtype, device=tensor.device)

        def __getattr__(self, name: str) -> Any:
            return getattr(torch, name)

    with monkeypatch.context() as patch:
        for module in (*ALLOCATING, device_plan, sites):
            patch.setattr(module, "torch", Guarded())
        yield
    assert kept
    for whole, length in kept:
        canary = canary_of(whole.dtype)
        assert (whole[:GUARD] == canary).all()
        assert (whole[GUARD + length :] == canary).all()
