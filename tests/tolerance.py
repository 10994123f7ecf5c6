"""Every tolerance of the suite, with its reason."""

from __future__ import annotations

import torch

# bounds and reasons of single products stand where benchmarks check them, too
from pcnn.ops.conformance import RELATIVE_RMS, SUMS_ON_TENSOR_CORES, relative_rms

__all__ = [
    "DENSE",
    "DIGEST",
    "DIGEST_FLOAT32",
    "FLOAT16_CHOICES",
    "LIKE_EAGER",
    "RELATIVE_RMS",
    "SUMS_ON_TENSOR_CORES",
    "TRAINING",
    "relative_rms",
]

#: A dense block against torch's own convolution, float64: order of additions only.
DENSE = 1e-10

#: Digests of networks of up to 42 layers, float64: order of additions, amplified by batch norms.
DIGEST = 1e-9
#: The same networks in float32: 2^-24 at every layer, amplified by batch norms over few rows.
DIGEST_FLOAT32 = 2e-3
#: Networks in memory of fixed size against exact tensors, by dtype: blocks of kernels follow the
#: number of tiles, so sums are added in another order.
LIKE_EAGER = {torch.float32: 1e-3, torch.float16: 2e-2}
#: Gradients in float16 behind ReLU and max pooling, against float64: some rounded values lie on the
#: other side of zero, or another row is the largest. The host's float16 differs by 0.034.
FLOAT16_CHOICES = 6e-2
#: Metrics up to 4 of six float64 steps: clouds are float32, and kinds of CPU average them in other
#: orders. That moves a loss by 3e-6.
TRAINING = 1e-5
