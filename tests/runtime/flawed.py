"""Dataflows with known flaws, for the tests of tuning."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from pcnn.dataflows import ConvSpec, Reference


@dataclass(frozen=True)
class Slow(Reference):
    """Right, but it takes its time."""

    name: str = "slow"
    seconds: float = 0.01

    def forward(self, *args: Any) -> Tensor:
        time.sleep(self.seconds)
        return super().forward(*args)

    def weight_grad(self, *args: Any) -> Tensor:
        time.sleep(self.seconds)
        return super().weight_grad(*args)


class CompilerError(Exception):
    """As Triton's: no subclass of what torch raises."""


@dataclass(frozen=True)
class Wrong(Reference):
    """In no time, but a part of the sums is missing, or never written."""

    name: str = "wrong"
    flaw: str = "zeros"

    def forward(
        self, x: Tensor, w: Tensor, layouts: Sequence[Tensor], n_out: int, spec: ConvSpec
    ) -> Tensor:
        if self.flaw == "raises":
            raise CompilerError("out of resources: shared memory\nand a long story")
        channels = w.shape[1] * spec.groups if spec.transposed else w.shape[2]
        if self.flaw == "shape":
            channels += 1
        fill = float("nan") if self.flaw == "nan" else 0.0
        return x.new_full((n_out, channels), fill, dtype=spec.out_dtype)

    def weight_grad(self, x: Tensor, g: Tensor, *args: Any) -> Tensor:
        return x.new_zeros(27, x.shape[1], g.shape[1])
