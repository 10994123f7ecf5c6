"""Dataflows with known flaws, for the tests of tuning."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pcnn.dataflows import Reference


@dataclass(frozen=True)
class Slow(Reference):
    """Right, but it takes its time."""

    name: str = "slow"
    seconds: float = 0.01

    def mvmr(self, *args: Any, **kwargs: Any) -> Tensor:
        time.sleep(self.seconds)
        return super().mvmr(*args, **kwargs)

    def vvor(self, *args: Any, **kwargs: Any) -> Tensor:
        time.sleep(self.seconds)
        return super().vvor(*args, **kwargs)


@dataclass(frozen=True)
class SlowElsewhere(Slow):
    """Reads a layout that the others do not read."""

    name: str = "slow_elsewhere"
    needs: tuple[str, ...] = ("pairs", "counts")
    needs_vvor: tuple[str, ...] = ("pairs", "counts")

    def mvmr(self, x: Tensor, weight: Tensor, layouts: Any, *args: Any, **kwargs: Any) -> Tensor:
        return super().mvmr(x, weight, layouts[:3], *args, **kwargs)

    def vvor(self, x: Tensor, grad: Tensor, layouts: Any, *args: Any, **kwargs: Any) -> Tensor:
        return super().vvor(x, grad, layouts[:3], *args, **kwargs)


class CompilerError(Exception):
    """As Triton's: no subclass of what torch raises."""


@dataclass(frozen=True)
class Wrong(Reference):
    """In no time, but a part of the sums is missing, or never written."""

    name: str = "wrong"
    flaw: str = "zeros"

    def mvmr(
        self,
        x: Tensor,
        weight: Tensor,
        layouts: Sequence[Tensor],
        n_out: int,
        groups: int,
        transposed: bool,
        compute_dtype: torch.dtype,
        out_dtype: torch.dtype,
        **kwargs: Any,
    ) -> Tensor:
        if self.flaw == "raises":
            raise CompilerError("out of resources: shared memory\nand a long story")
        channels = weight.shape[1] * groups if transposed else weight.shape[2]
        if self.flaw == "shape":
            channels += 1
        fill = float("nan") if self.flaw == "nan" else 0.0
        return x.new_full((n_out, channels), fill, dtype=out_dtype)

    def vvor(self, x: Tensor, grad: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return x.new_zeros(27, x.shape[1], grad.shape[1])
