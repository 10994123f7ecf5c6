"""Every tolerance of the suite, with its reason."""

from __future__ import annotations

# bounds and reasons of single products stand where `pcnn bench` checks them, too
from pcnn.ops.conformance import RELATIVE_RMS, SUMS_ON_TENSOR_CORES, relative_rms

__all__ = ["DENSE", "RELATIVE_RMS", "SUMS_ON_TENSOR_CORES", "relative_rms"]

#: A dense block against torch's own convolution, float64: order of additions only.
DENSE = 1e-10
