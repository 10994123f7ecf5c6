"""Losses in memory of fixed size are those of the rows themselves."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pcnn.graphs.capture import CudaGraphs, Work
from pcnn.graphs.fixed_input import Edges
from pcnn.losses import CrossEntropy, LovaszSoftmax, WeightedSum
from pcnn.metrics.confusion import class_counts
from pcnn.tasks.loss_graphs import LossGraphs, is_of_rows
from tests.waits import nothing_waits

LOSSES = {
    "lovasz": WeightedSum([CrossEntropy(), LovaszSoftmax()]),
    "weights": CrossEntropy([1.0, 2.0, 0.5, 3.0, 1.0], label_smoothing=0.1),
}


def rows(seed: int, device: str, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Logits and labels, of 100 to 300 rows."""
    generator = torch.Generator().manual_seed(seed)
    size = 100 + 50 * (seed % 5)
    logits = 3 * torch.randn(size, 5, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, 5, (size,), generator=generator)
    labels[::4] = 255
    if seed == 3:
        labels[:] = 255
    return logits.to(device, dtype).requires_grad_(), labels.to(device)


def check(loss: nn.Module, device: str, dtype: torch.dtype, capture: Any) -> LossGraphs:
    loss = loss.to(device)

    def learnt(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        return loss(logits, labels), class_counts(logits.detach().argmax(1), labels, 5)

    graphs = LossGraphs(learnt, 255, capture, Edges(128))
    exact = dtype == torch.float64
    for seed in (*range(6), *range(6)):
        (one, labels), (other, _) = rows(seed, device, dtype), rows(seed, device, dtype)
        (value, counts), (expected, others) = graphs(one, labels), learnt(other, labels)
        (7 * value).backward(), (7 * expected).backward()
        torch.testing.assert_close(value, expected, rtol=1e-12 if exact else 1e-5, atol=1e-12)
        tolerance = {"rtol": 1e-10 if exact else 1e-2, "atol": 1e-13 if exact else 1e-6}
        torch.testing.assert_close(one.grad, other.grad, **tolerance)
        assert torch.equal(counts, others)
    return graphs


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
@pytest.mark.parametrize("name", LOSSES)
def test_spare_rows_change_nothing(name: str, dtype: torch.dtype) -> None:
    made: list[Work] = []

    def capture(work: Work) -> Work:
        made.append(work)
        return work

    check(LOSSES[name], "cpu", dtype, capture)
    assert len(made) == 3  # up to 128, 256 and 384 rows


def test_what_cannot_be_captured_runs_one_by_one() -> None:
    def refused(work: Work) -> Work:
        raise RuntimeError("no graph")

    assert check(LOSSES["lovasz"], "cpu", torch.float64, refused).reason == "no graph"


def test_a_gradient_that_was_written_over_is_refused() -> None:
    graphs = LossGraphs(lambda x, _: (x.sum(), x.detach()), 255, lambda work: work)
    one, other = (graphs(*rows(0, "cpu", torch.float32))[0] for _ in range(2))
    other.backward()
    with pytest.raises(RuntimeError, match="another one was computed"):
        one.backward()


def test_losses_of_rows_are_known() -> None:
    class Own(CrossEntropy):
        pass

    assert all(is_of_rows(loss, 255) for loss in LOSSES.values())
    others = Own(), CrossEntropy(ignore_index=0), nn.CrossEntropyLoss(), WeightedSum([Own()])
    assert not any(is_of_rows(loss, 255) for loss in others)


@pytest.mark.gpu
@pytest.mark.parametrize("name", LOSSES)
def test_graphs_on_a_device(name: str) -> None:
    for dtype in (torch.float64, torch.float16):
        graphs = check(LOSSES[name], "cuda", dtype, CudaGraphs(torch.device("cuda")))
        assert graphs.reason is None
        logits, labels = rows(0, "cuda", dtype)
        with nothing_waits():
            graphs(logits, labels)[0].backward()
