"""The correctness gate of networks.

Rounding adds up over forty layers, and a sign that flips in a ReLU changes a gradient for good. So
a network is held to plain torch in the same dtype: the error of an output against float64 may be
twice that of plain torch, that of a gradient four times (few numbers, each its own sum of flipped
signs), or `FLOOR` times the bound of one product. The products of single layers are held to tighter
bounds by the suite ``layers``.
"""

from __future__ import annotations

from torch import Tensor

from pcnn.bench.verify import CheckFailed, Configuration, Proof, bound_of

#: Largest error of an output and of a gradient, in errors of plain torch.
OUTPUT, GRADIENT = 2.0, 4.0
#: Errors below this many times the bound of one product need no comparison.
FLOOR = 4.0


def check_network(
    configuration: Configuration,
    results: dict[str, Tensor],
    truth: dict[str, Tensor],
    plain: dict[str, Tensor],
) -> Proof:
    """Compare a network's results with float64 and with plain torch in the same dtype.

    Args:
        configuration: what computed them; its ``dtype`` chooses the bound.
        results: outputs and gradients by name.
        truth: the same names in float64.
        plain: the same names, of plain torch in the dtype of the results.

    Raises:
        CheckFailed: a result is missing, not finite, or further off than plain torch explains.
    """
    if set(results) != set(truth):
        raise CheckFailed(f"{configuration}: results {sorted(results)}, truth {sorted(truth)}")
    bound = FLOOR * bound_of(str(configuration.dtype))
    for name, expected in truth.items():
        result = results[name]
        if result.shape != expected.shape or not bool(result.isfinite().all()):
            raise CheckFailed(f"{configuration}: {name} has another shape or is not finite")
        error, explained = _rms(result.double() - expected), _rms(plain[name].double() - expected)
        scale = _rms(expected)
        allowed = OUTPUT if name.startswith("out") else GRADIENT
        if error > max(allowed * explained, bound * scale):
            raise CheckFailed(
                f"{configuration}: {name} is off by {error:.2e} (RMS) at a scale of {scale:.2e}; "
                f"plain torch in {configuration.dtype} by {explained:.2e}"
            )
    return Proof(configuration)


def _rms(tensor: Tensor) -> float:
    return float(tensor.square().mean().sqrt()) if tensor.numel() else 0.0
