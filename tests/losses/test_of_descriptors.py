"""Every loss of descriptors: batches without matches, and half precision."""

import pytest
import torch
from torch import nn

from pcnn.losses import HardestContrastive, InfoNCE
from tests.losses.pairs import DEGENERATE, pair_batch, unit_rows

LOSSES = {"hardest": HardestContrastive(), "info_nce": InfoNCE()}
each = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)


@each
@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_batches_have_finite_gradients(name: str, loss: nn.Module) -> None:
    batch = pair_batch(*DEGENERATE[name], 0.5)
    for factor in (1.0, 0.0):  # descriptors, and rows of zeros
        sides = [
            (factor * unit_rows(len(p), 4, 1).detach()).requires_grad_()
            for p in (batch.source_places, batch.target_places)
        ]
        value = loss(*sides, batch)
        value.backward()
        assert torch.isfinite(value)
        for side in sides:
            assert torch.isfinite(side.grad).all()
            assert len(batch.positives) or not side.grad.any()
    if isinstance(loss, HardestContrastive):
        assert set(loss.terms) == {"positive", "negative"}


@each
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_computed_in_float32(dtype: torch.dtype, loss: nn.Module) -> None:
    source = torch.rand(40, 3, generator=torch.Generator().manual_seed(3)) * 9
    batch = pair_batch([source], [source + 0.1], 0.6)
    f, g = (unit_rows(40, 16, n).detach().to(dtype) for n in (1, 2))
    value = loss(f.requires_grad_(), g, batch)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, loss(f.detach().float(), g.float(), batch))
    value.backward()
    assert f.grad.dtype == dtype


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (HardestContrastive, {"positives": 0}),
        (InfoNCE, {"temperature": 0.0}),
        (InfoNCE, {"safe_radius": 0.0}),
        (InfoNCE, {"candidates": 0}),
    ],
)
def test_settings_are_positive(kind: type[nn.Module], wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=list(wrong)[-1]):
        kind(**wrong)
