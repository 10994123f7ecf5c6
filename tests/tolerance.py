"""Every tolerance of the suite, with its reason."""

from __future__ import annotations

import torch
from torch import Tensor

#: Relative RMS error against float64, operands rounded to the dtype before the reference runs.
#: float64: order of additions. float32: sums of up to a few thousand terms (worst seen 3e-7).
#: float16, bfloat16: one rounding of the result, half an ulp is 2^-11 and 2^-8 (worst seen 2.1e-4
#: and 1.7e-3); products and sums are float32.
RELATIVE_RMS = {
    torch.float64: 1e-14,
    torch.float32: 1e-6,
    torch.float16: 5e-4,
    torch.bfloat16: 4e-3,
}

#: Float32 results of sums on a GPU: tensor cores truncate where they align the terms of a sum, so
#: errors do not cancel (worst seen 6.6e-5, all towards zero, of a million terms a slot).
SUMS_ON_TENSOR_CORES = 1e-4

#: A dense block against torch's own convolution, float64: order of additions only.
DENSE = 1e-10


def relative_rms(value: Tensor, reference: Tensor) -> float:
    """||value - reference|| / ||reference||; NaN never passes a comparison."""
    value, reference = value.detach().double(), reference.detach().double()
    return float((value - reference).norm() / reference.norm().clamp_min(1e-300))
