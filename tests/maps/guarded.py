"""Memory with guards around every tensor that a builder allocates."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from pcnn.maps import packed_search, table_to_pairs, z_delta

GUARD = 64
CANARY = -123456789
POISON = torch.iinfo(torch.int32).min


@contextmanager
def guarded(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Poison what builders allocate, and see at the end that nothing around it was written."""
    kept: list[tuple[torch.Tensor, int]] = []

    def allocate(fill: int | None, *args: Any, **kwargs: Any) -> torch.Tensor:
        shape = torch.Size(args[0] if isinstance(args[0], (tuple, torch.Size)) else args)
        whole = torch.full((shape.numel() + 2 * GUARD,), CANARY, dtype=kwargs["dtype"])
        kept.append((whole, shape.numel()))
        inside = whole[GUARD : GUARD + shape.numel()]
        return inside.fill_(POISON if fill is None else fill).view(shape)

    class Guarded:
        """torch, with three of its functions replaced."""

        empty = staticmethod(lambda *args, **kwargs: allocate(None, *args, **kwargs))
        zeros = staticmethod(lambda *args, **kwargs: allocate(0, *args, **kwargs))
        full: Callable[..., torch.Tensor] = staticmethod(
            lambda shape, value, **kwargs: allocate(value, shape, **kwargs)
        )

        @staticmethod
        def empty_like(tensor: torch.Tensor) -> torch.Tensor:
            return allocate(None, tensor.shape, dtype=tensor.dtype)

        def __getattr__(self, name: str) -> Any:
            return getattr(torch, name)

    with monkeypatch.context() as patch:
        for module in (packed_search, table_to_pairs, z_delta):
            patch.setattr(module, "torch", Guarded())
        yield
    assert kept
    for whole, length in kept:
        assert (whole[:GUARD] == CANARY).all()
        assert (whole[GUARD + length :] == CANARY).all()
