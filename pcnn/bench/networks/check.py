"""The correctness gate of networks.

Rounding adds up over forty layers, a norm over few rows amplifies it, and a sign that flips in a
ReLU changes a gradient for good; how much of this happens depends on weights and scene, so no
multiple of one rounding, nor of plain torch's own error, bounds it for all networks. The suite
``layers`` holds every product to a bound. A network is held to what products that far off may make
of it: its float64 self is run with a random error of that size on every product
(`pcnn.bench.networks.rounding`), and an output may be off by twice as much, a gradient by four
times. The factors are for the draw: errors of several draws differ by up to 2.3 in an output, by 8
in most gradients (few numbers, each its own sum of flipped signs). Plain torch's error in the same
dtype takes the place of these where it is larger. A gradient below one rounding of the largest one
vanishes, as behind a norm whose rows are equal: its terms cancel, and it may be off by a rounding
of the largest.
"""

from __future__ import annotations

from torch import Tensor

from pcnn.bench.verify import CheckFailed, Configuration, Proof, bound_of

#: Largest error of an output and of a gradient, in errors of a network of rounded products.
OUTPUT, GRADIENT = 2.0, 4.0


def check_network(
    configuration: Configuration,
    results: dict[str, Tensor],
    truth: dict[str, Tensor],
    plain: dict[str, Tensor],
    rounded: dict[str, float],
) -> Proof:
    """Compare a network's results with float64, as far as errors of its products explain.

    Args:
        configuration: what computed them; its ``dtype`` chooses the bound.
        results: outputs and gradients by name.
        truth: the same names in float64.
        plain: the same names, of plain torch in the dtype of the results.
        rounded: by name, the RMS error of the network whose products are off by their bound.

    Raises:
        CheckFailed: a result is missing, not finite, or further off than its bound.
    """
    if set(results) != set(truth):
        raise CheckFailed(f"{configuration}: results {sorted(results)}, truth {sorted(truth)}")
    rounding = bound_of(str(configuration.dtype))
    gradients = {n: rms(t) for n, t in truth.items() if not n.startswith("out")}
    least = rounding * max(gradients.values(), default=0.0)
    for name, expected in truth.items():
        result = results[name]
        if result.shape != expected.shape or not bool(result.isfinite().all()):
            raise CheckFailed(f"{configuration}: {name} has another shape or is not finite")
        error, explained = rms(result.double() - expected), rms(plain[name].double() - expected)
        scale = rms(expected)
        one = least if name in gradients and scale < least else rounding * scale
        factor = OUTPUT if name.startswith("out") else GRADIENT
        bound = factor * max(explained, rounded[name], one)
        if error > bound:
            raise CheckFailed(
                f"{configuration}: {name} is off by {error:.2e} (RMS) at a scale of {scale:.2e}; "
                f"its bound is {bound:.2e}, {factor:g} times the error of plain torch "
                f"({explained:.2e}), of products at their bounds ({rounded[name]:.2e}) or of one "
                f"rounding ({one:.2e}), whichever is the largest"
            )
    return Proof(configuration)


def rms(tensor: Tensor) -> float:
    """Root of the mean square; 0 of an empty tensor."""
    return float(tensor.square().mean().sqrt()) if tensor.numel() else 0.0
