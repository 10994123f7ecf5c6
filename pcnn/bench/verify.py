"""The correctness gate: the result of a configuration is verified before it is timed.

The whole check of its dataflow and map builder comes first: `pcnn.bench.conformance`.

A network is held to more than a bound of single products. Rounding adds up over forty layers, a
norm over few rows amplifies it, and a sign that flips in a ReLU changes a gradient by much more.
How much of this happens depends on weights and scene. So no multiple of one rounding, nor of plain
torch's own error, bounds it for all networks. So its float64 self is run with a random error of the
bound's size on every product (`pcnn.bench.networks.rounding`), and an output may be off by twice as
much, a gradient by four times. The factors are for the draw: errors of several draws differ by up
to 2.3 in an output, by 8 in most gradients (few numbers, each its own sum of flipped signs). Plain
torch's error in the same dtype takes the place of these where it is larger. A gradient below one
rounding of the largest one vanishes, as behind a norm whose rows are equal: its terms cancel, and
it may be off by a rounding of the largest.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pcnn.bench.layer_products import RELATIVE_RMS, disagreement
from pcnn.bench.oracle import Pair
from pcnn.bench.rows import Row, described
from pcnn.geometry import KernelMap

#: Name of float32 operands that are rounded to ten bits, as half precision has.
TF32 = "tf32"
#: Largest error of an output and of a gradient, in errors of a network of rounded products.
OUTPUT, GRADIENT = 2.0, 4.0

Tensors = dict[str, Tensor]


class CheckFailed(RuntimeError):
    """A result that disagrees with the reference; its configuration gets no time."""


@dataclass(frozen=True)
class Proof:
    """A configuration that has passed its check; made by the checks.

    Args:
        row: what its rows say: all that decides what is computed, and where.
    """

    row: Row

    def admit(self, row: Row) -> None:
        """Let the time of this configuration pass.

        Raises:
            CheckFailed: the proof is of another configuration.
        """
        if row != self.row:
            raise CheckFailed(
                f"the results of {described(self.row)} were checked, but {described(row)} is to be "
                "timed; check the configuration that is timed"
            )


def check_triplets(row: Row, built: KernelMap, truth: list[Pair]) -> Proof:
    """Compare a kernel map with triplets, given as the rows (j, i) of every slot.

    Raises:
        CheckFailed: a triplet is missing, or there is one too many.
    """
    device = built.in_index.device
    counts = torch.tensor([len(j) for j, _ in truth], device=device)
    slots = torch.arange(len(truth), device=device).repeat_interleave(counts)
    in_index, out_index = (torch.cat(rows) for rows in zip(*truth, strict=True))
    wanted = _numbers(slots, in_index, out_index, built)
    got = _numbers(built.slot_index, built.in_index.long(), built.out_index.long(), built)
    if not torch.equal(got, wanted):
        common = int(torch.isin(got, wanted).sum())
        raise CheckFailed(
            f"{described(row)}: {len(got)} triplets, {len(wanted)} expected, {common} in common; "
            "all must be"
        )
    return Proof(row)


def _numbers(slot: Tensor, j: Tensor, i: Tensor, shape: KernelMap) -> Tensor:
    return ((slot * shape.n_out + i) * shape.n_in + j).sort().values


def bound_of(dtype: str) -> float:
    """Bound on the relative RMS error of a dtype's name; ``tf32`` rounds as float16 does."""
    return RELATIVE_RMS[dtype]


def check_values(row: Row, results: Tensors, truth: Tensors, terms: int = 0) -> Proof:
    """Compare results with their float64 reference.

    Args:
        row: what computed them; its ``dtype`` chooses the bound.
        results: tensors by name.
        truth: the same names in float64.
        terms: products in the longest sum of a gradient of weights, which may be many thousands.

    Raises:
        CheckFailed: a result is missing, not finite, or further off than its dtype explains.
    """
    _same_names(row, results, truth)
    for name, expected in truth.items():
        of_sum = terms if name == "grad_weight" else 0
        wrong = disagreement(results[name], expected, str(row.dtype), of_sum)
        if wrong:
            raise CheckFailed(f"{described(row)}: {name} {wrong}")
    return Proof(row)


def check_network(
    row: Row, results: Tensors, truth: Tensors, plain: Tensors, rounded: dict[str, float]
) -> Proof:
    """Compare a network's results with float64, as far as errors of its products explain.

    Args:
        row: what computed them; its ``dtype`` chooses the bound.
        results: outputs and gradients by name.
        truth: the same names in float64.
        plain: the same names, of plain torch in the dtype of the results.
        rounded: by name, the RMS error of the network whose products are off by their bound.

    Raises:
        CheckFailed: a result is missing, not finite, or further off than its bound.
    """
    _same_names(row, results, truth)
    rounding = bound_of(str(row.dtype))
    gradients = {n: rms(t) for n, t in truth.items() if not n.startswith("out")}
    least = rounding * max(gradients.values(), default=0.0)
    for name, expected in truth.items():
        result = results[name]
        if result.shape != expected.shape or not bool(result.isfinite().all()):
            raise CheckFailed(f"{described(row)}: {name} has another shape or is not finite")
        error, explained = rms(result.double() - expected), rms(plain[name].double() - expected)
        scale = rms(expected)
        one = least if name in gradients and scale < least else rounding * scale
        factor = OUTPUT if name.startswith("out") else GRADIENT
        bound = factor * max(explained, rounded[name], one)
        if error > bound:
            raise CheckFailed(
                f"{described(row)}: {name} is off by {error:.2e} (RMS) at a scale of {scale:.2e}; "
                f"its bound is {bound:.2e}, {factor:g} times the error of plain torch "
                f"({explained:.2e}), of products at their bounds ({rounded[name]:.2e}) or of one "
                f"rounding ({one:.2e}), whichever is the largest"
            )
    return Proof(row)


def _same_names(row: Row, results: Tensors, truth: Tensors) -> None:
    if set(results) != set(truth):
        raise CheckFailed(f"{described(row)}: results {sorted(results)}, truth {sorted(truth)}")


def rms(tensor: Tensor) -> float:
    """Root of the mean square; 0 of an empty tensor."""
    return float(tensor.square().mean().sqrt()) if tensor.numel() else 0.0
