"""What the evidence and the solver do on a GPU, followed on tensors without numbers.

Tensors of torch's device `meta` stand for those of a GPU: they say that they are, refuse to be read
by the host, and are refused beside tensors of the CPU.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from pcnn.registration import surface_fit
from pcnn.registration.descriptor import Described
from pcnn.registration.evidence import NAMES, PairEvidence

#: May take tensors of two devices.
CROSSINGS = (Tensor.to, Tensor.copy_, torch.empty_like, torch.zeros_like)


class Gpu(TorchFunctionMode):
    """Takes tensors of `meta` for those of a GPU."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        given = [one for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)]
        if func == Tensor.is_cuda.__get__ and given[0].is_meta:  # type: ignore[attr-defined]
            return True
        if func == Tensor.cpu and given[0].is_meta:
            return torch.zeros(given[0].shape, dtype=given[0].dtype)
        if func not in CROSSINGS:
            devices = {one.device.type for one in given if one.ndim}
            assert len(devices) < 2, f"{func} gets tensors of {devices}"
        return func(*args, **(kwargs or {}))


def numbers(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(*shape, dtype=dtype, device="meta")


def test_a_mixture_and_a_wait_are_noticed() -> None:
    with Gpu():
        assert numbers(3).is_cuda
        with pytest.raises(AssertionError, match="gets tensors of"):
            numbers(3) + torch.zeros(3)
        with pytest.raises((RuntimeError, NotImplementedError)):
            bool(numbers(3).any())


@pytest.mark.parametrize("view_points", [True, False])
def test_evidence_and_surfaces_need_no_look(view_points: bool) -> None:
    sources, targets = (
        [Described(numbers(n, 3), numbers(n, 32)) for n in (size, size + 7)] for size in (3000, 400)
    )
    ends, pairs = [(numbers(90, 3), numbers(90, 3))] * 2, 2
    with Gpu():
        pair = PairEvidence(sources, targets, ends, 0.075, 0.05, view_points)
        found = pair([torch.zeros(5, 4, 4).double()] * pairs)
        moved = surface_fit.fit_surfaces(numbers(pairs, 4, 4, dtype=torch.float64), pair)
    assert [one.shape for one in found] == [(5, len(NAMES))] * pairs
    assert (found[0].dtype, found[0].device.type) == (torch.float64, "cpu")
    assert (moved.shape, moved.dtype) == ((pairs, 4, 4), torch.float64)
