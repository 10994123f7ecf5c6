"""The correctness gate: the result of a configuration is verified before it is timed.

The whole check of its dataflow and map builder comes first: `pcnn.bench.conformance`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pcnn.bench import oracle
from pcnn.geometry import Kernel, KernelMap
from pcnn.ops.agreement import RELATIVE_RMS, disagreement

#: Name of float32 operands that are rounded to ten bits, as half precision has.
TF32 = "tf32"


class CheckFailed(RuntimeError):
    """A result that disagrees with the reference; its configuration gets no time."""


@dataclass(frozen=True)
class Configuration:
    """All that decides what a measured call computes, and where."""

    engine: str
    workload: str
    device: str
    kernel: Kernel
    dtype: str | None = None
    c_in: int | None = None
    c_out: int | None = None
    backward: bool = False
    product: str | None = None
    params: tuple[tuple[str, int | float | str], ...] = ()


@dataclass(frozen=True)
class Proof:
    """A configuration that has passed its check; made by the checks of this file."""

    configuration: Configuration

    def admit(self, configuration: Configuration) -> None:
        """Let the time of this configuration pass.

        Raises:
            CheckFailed: the proof is of another configuration.
        """
        if configuration != self.configuration:
            raise CheckFailed(
                f"the results of {self.configuration} were checked, but {configuration} is to be "
                "timed; check the configuration that is timed"
            )


def check_triplets(
    configuration: Configuration, built: KernelMap, truth: list[oracle.Pair]
) -> Proof:
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
            f"{configuration}: {len(got)} triplets, {len(wanted)} expected, {common} in common; "
            "all must be"
        )
    return Proof(configuration)


def _numbers(slot: Tensor, j: Tensor, i: Tensor, shape: KernelMap) -> Tensor:
    return ((slot * shape.n_out + i) * shape.n_in + j).sort().values


def bound_of(dtype: str) -> float:
    """Bound on the relative RMS error of a dtype's name; ``tf32`` rounds as float16 does."""
    return RELATIVE_RMS[dtype]


def check_values(
    configuration: Configuration,
    results: dict[str, Tensor],
    truth: dict[str, Tensor],
    terms: int = 0,
) -> Proof:
    """Compare results with their float64 reference.

    Args:
        configuration: what computed them; its ``dtype`` chooses the bound.
        results: tensors by name.
        truth: the same names in float64.
        terms: products in the longest sum of a gradient of weights, which may be many thousands.

    Raises:
        CheckFailed: a result is missing, not finite, or further off than its dtype explains.
    """
    if set(results) != set(truth):
        raise CheckFailed(f"{configuration}: results {sorted(results)}, truth {sorted(truth)}")
    for name, expected in truth.items():
        of_sum = terms if name == "grad_weight" else 0
        wrong = disagreement(results[name], expected, str(configuration.dtype), of_sum)
        if wrong:
            raise CheckFailed(f"{configuration}: {name} {wrong}")
    return Proof(configuration)
