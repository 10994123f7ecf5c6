"""Learning-rate schedules: pure functions of the step, so that a resumed run continues exactly."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated

from annotated_types import Interval
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from pcnn.ranges import Count, Natural, NonNegative, PartialShare, Share

_Decay = Annotated[float, Interval(gt=0, le=1)]


def one_cycle(
    optimizer: Optimizer,
    total_steps: int,
    warmup: PartialShare = 0.2,
    start: Share = 0.04,
    end: Share = 1e-4,
) -> LambdaLR:
    """Cosine rise from `start` to 1 over the first share `warmup`, cosine fall to `end`.

    The factors multiply each group's own rate, which is the peak; momentum stays as it is.
    Past `total_steps` the factor stays at `end`.

    Source: Smith and Topin, "Super-Convergence", 2018, learning rate only.
    """
    peak = warmup * total_steps

    def factor(step: int) -> float:
        if step < peak:
            return between(start, 1.0, step / peak)
        return between(1.0, end, (step - peak) / max(1.0, total_steps - 1 - peak))

    return LambdaLR(optimizer, factor)


def cosine(
    optimizer: Optimizer, total_steps: int, warmup_steps: Natural = 0, end: Share = 0.0
) -> LambdaLR:
    """Linear warm-up over `warmup_steps`, then cosine from 1 to `end` at the last step."""

    def factor(step: int) -> float:
        if step < warmup_steps:
            return (step + 1) / warmup_steps
        return between(1.0, end, (step - warmup_steps) / max(1, total_steps - warmup_steps))

    return LambdaLR(optimizer, factor)


def exponential(
    optimizer: Optimizer,
    total_steps: int,
    gamma: _Decay = 0.99,
    epochs: Count = 100,
) -> LambdaLR:
    """Multiply the rates by `gamma` after every one of `epochs` equal parts of the run.

    With `epochs` as many as the run has, and as many steps in each, this is
    `torch.optim.lr_scheduler.ExponentialLR` stepped once an epoch. A shorter run with the same
    `epochs` falls as far, only faster.
    """
    return LambdaLR(optimizer, lambda step: gamma ** (step * epochs // max(1, total_steps)))


def multi_step(
    optimizer: Optimizer,
    total_steps: int,
    milestones: Sequence[Share] = (2 / 3, 8 / 9),
    gamma: _Decay = 0.1,
) -> LambdaLR:
    """Times `gamma` at every milestone."""
    steps = [round(share * total_steps) for share in milestones]
    return LambdaLR(optimizer, lambda step: gamma ** sum(step >= at for at in steps))


def poly(optimizer: Optimizer, total_steps: int, power: NonNegative = 0.9) -> LambdaLR:
    """(1 - step / total_steps) ** power, 0 beyond the end."""
    return LambdaLR(optimizer, lambda step: max(0.0, 1 - step / max(1, total_steps)) ** power)


def constant(optimizer: Optimizer, total_steps: int) -> LambdaLR:
    """The optimiser's own rates throughout; `total_steps` is not used."""
    del total_steps
    return LambdaLR(optimizer, lambda step: 1.0)


def between(a: float, b: float, share: float) -> float:
    """Half a cosine wave from `a` at share 0 to `b` at share 1, constant beyond."""
    share = min(max(share, 0.0), 1.0)
    return b + (a - b) * 0.5 * (1.0 + math.cos(math.pi * share))
