"""Losses of descriptors against loops, batches without matches, half precision."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pcnn.losses import HardestContrastive, InfoNCE
from pcnn.losses.descriptors import drawn, info_nce
from tests.losses.pairs import pair_batch, unit_rows


def by_loops(
    f: Tensor,
    g: Tensor,
    pairs: Tensor,
    anchors: Tensor,
    pools: tuple[Tensor, Tensor],
) -> tuple[Tensor, Tensor]:
    """FCGF's loss, one match at a time, in the precision of the features; margins 0.1 and 1.4."""
    listed = {(i, j) for i, j in pairs.tolist()}
    source_pool, target_pool = (pool.tolist() for pool in pools)
    positive: list[Tensor] = []
    hinges: tuple[list[Tensor], list[Tensor]] = ([], [])

    def gap(a: Tensor, b: Tensor) -> Tensor:
        return (((a - b) ** 2).sum() + 1e-7) ** 0.5

    for i, j in anchors.tolist():
        positive.append(torch.clamp(((f[i] - g[j]) ** 2).sum() - 0.1, min=0))
        n = min(target_pool, key=lambda row: float(gap(f[i], g[row]).detach()))
        if (i, n) not in listed:
            hinges[0].append(torch.clamp(1.4 - gap(f[i], g[n]), min=0) ** 2)
        n = min(source_pool, key=lambda row: float(gap(g[j], f[row]).detach()))
        if (n, j) not in listed:
            hinges[1].append(torch.clamp(1.4 - gap(g[j], f[n]), min=0) ** 2)
    nothing = (f[:0].sum() + g[:0].sum()).reshape(())
    means = [torch.stack(side).mean() if side else nothing for side in (positive, *hinges)]
    return means[0], (means[1] + means[2]) / 2


def batch_of_two(seed: int = 0, n: int = 23) -> Any:
    generator = torch.Generator().manual_seed(seed)
    sources = [torch.rand(n, 3, generator=generator) * 4 for _ in range(2)]
    targets = [s[torch.randperm(n, generator=generator)[: n - 4]] + 0.05 for s in sources]
    return pair_batch(sources, targets, 1.2)


def test_hardest_contrastive_equals_the_loops_with_gradients_of_the_same_draws() -> None:
    batch, cpu = batch_of_two(1), torch.device("cpu")
    f, g = unit_rows(46, 4, 1), unit_rows(38, 4, 2)
    module = HardestContrastive(positives=10, candidates=12)
    torch.manual_seed(0)
    value = module(f, g, batch)
    torch.manual_seed(0)
    assert len(batch.positives) > 20
    anchors = batch.positives[drawn(len(batch.positives), 20, cpu)]
    pools = drawn(46, 24, cpu), drawn(38, 24, cpu)
    wanted = torch.stack(by_loops(f, g, batch.positives, anchors, pools)).sum()
    torch.testing.assert_close(value, wanted, rtol=1e-12, atol=0)
    for one, other in zip(*(torch.autograd.grad(x, (f, g)) for x in (value, wanted)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-14)


def info_by_loops(f: Tensor, g: Tensor, h: Tensor, negative: Tensor, temperature: float) -> Tensor:
    """-log of the share of the own end of every anchor of one pair of clouds, by exponentials."""
    each = []
    for i in range(len(f)):
        own = torch.exp(f[i] @ g[i] / temperature)
        others = sum(torch.exp(f[i] @ h[k] / temperature) for k in range(len(h)) if negative[i, k])
        each.append(-torch.log(own / (own + others)))
    return torch.stack(each)


def test_info_nce_equals_the_formula_with_gradients() -> None:
    generator = torch.Generator().manual_seed(0)
    f, g, h = (unit_rows(n, 4, seed) for n, seed in ((9, 1), (9, 2), (12, 3)))
    drawn = torch.arange(9) < 7
    negative = torch.rand(9, 12, generator=generator) < 0.6
    negative[3] = False  # an end without any
    found = info_nce(f[None], g[None], h[None], negative[None], drawn[None], 0.2)
    wanted = info_by_loops(f, g, h, negative, 0.2)[:7].mean()
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=0)
    for one, other in zip(
        torch.autograd.grad(found, (f, g, h)), torch.autograd.grad(wanted, (f, g, h)), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-14)


def test_negatives_of_info_nce_are_far_rows_of_the_other_cloud() -> None:
    generator = torch.Generator().manual_seed(3)
    sources = [torch.rand(n, 3, generator=generator) * 3 for n in (9, 6)]
    targets = [torch.cat([cloud + 0.01, cloud[:2] + 9.0]) for cloud in sources]  # no overlap there
    batch = pair_batch(sources, targets, 0.1, voxel_size=0.4)
    assert batch.positives.tolist() == [[i, i + 2 * (i >= 9)] for i in range(15)]
    f, g = unit_rows(15, 8, 1), unit_rows(19, 8, 2)
    value = InfoNCE(0.2, safe_radius=3.0)(f, g, batch)
    parts = []
    for own, other in ((slice(0, 9), slice(0, 11)), (slice(9, 15), slice(11, 19))):
        p, q = batch.source_places[own], batch.target_places[other]
        n = len(p)
        parts.append(info_by_loops(f[own], g[other][:n], g[other], torch.cdist(p, q) > 1.2, 0.2))
        far = torch.cdist(q[:n], p) > 1.2
        parts.append(info_by_loops(g[other][:n], f[own], f[own], far, 0.2))
    torch.testing.assert_close(value, torch.cat(parts).sum() / 30, rtol=1e-9, atol=0)


def test_nothing_to_learn_hides_no_features() -> None:
    # a zero that was made by a product with features would be NaN
    f = torch.full((2, 3), torch.inf, requires_grad=True)
    value = HardestContrastive()(f, f, pair_batch([torch.eye(2, 3)], [torch.eye(2, 3) + 9], 0.5))
    value.backward()
    assert value == 0
    assert not f.grad.any()


LOSSES = {"hardest": HardestContrastive(), "info_nce": InfoNCE()}
each = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)


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
