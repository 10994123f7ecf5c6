"""Whether a computed tensor agrees with its float64 truth, as far as its dtype explains."""

from __future__ import annotations

import torch
from torch import Tensor

#: Bound on the relative RMS error, by what the operands are rounded to. Half and bfloat16 results
#: are rounded once, at 2^-11 and 2^-8 relative, TF32 operands at 2^-11; float32 sums K x C
#: products; float64 differs from the reference by summation order.
RELATIVE_RMS = {
    "float16": 1e-3,
    "bfloat16": 8e-3,
    "tf32": 1e-3,
    "float32": 2e-6,
    "float64": 1e-12,
}
#: Error of a float32 sum of n random terms, relative to it, over the root of n.
SUM_ERROR = 1e-8
#: No single element is off by more than this many times the bound times the RMS of the truth.
WORST_OVER_RMS = 50.0


def disagreement(result: Tensor, truth: Tensor, dtype: str, terms: int = 0) -> str | None:
    """What is wrong with a result, ``None`` if it agrees.

    Args:
        result: any float dtype.
        truth: the same shape, float64.
        dtype: that operands were rounded to, a name in `RELATIVE_RMS`.
        terms: products in the longest sum, one after another in float32 at worst: the error of
            such a sum grows with the root of their number.
    """
    if result.shape != truth.shape:
        return f"has the shape {tuple(result.shape)} instead of {tuple(truth.shape)}"
    result = result.detach().double()
    if not bool(torch.isfinite(result).all()):
        return "is not finite"
    if not truth.numel():
        return None
    bound = RELATIVE_RMS[dtype]
    if dtype != "float64":
        bound += SUM_ERROR * terms**0.5
    scale = truth.square().mean().sqrt().item()
    error = result - truth
    rms, worst = error.square().mean().sqrt().item(), error.abs().max().item()
    if rms > bound * scale or worst > WORST_OVER_RMS * bound * scale:
        return (
            f"is off by {rms:.2e} (RMS) and {worst:.2e} (worst) at a scale of {scale:.2e}; the "
            f"bounds for {dtype} are {bound * scale:.2e} and {WORST_OVER_RMS * bound * scale:.2e}"
        )
    return None
