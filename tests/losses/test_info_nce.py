"""InfoNCE against its formula, one match at a time; what batches without matches do."""

import torch
from torch import Tensor

from pcnn.losses.descriptors import InfoNCE, info_nce
from tests.losses.pairs import pair_batch, unit_rows


def by_loops(f: Tensor, g: Tensor, h: Tensor, negative: Tensor, temperature: float) -> Tensor:
    """-log of the share of the own end of every anchor of one pair of clouds, by exponentials."""
    each = []
    for i in range(len(f)):
        own = torch.exp(f[i] @ g[i] / temperature)
        others = sum(torch.exp(f[i] @ h[k] / temperature) for k in range(len(h)) if negative[i, k])
        each.append(-torch.log(own / (own + others)))
    return torch.stack(each)


def test_equals_the_formula_with_gradients() -> None:
    generator = torch.Generator().manual_seed(0)
    f, g, h = (unit_rows(n, 4, seed) for n, seed in ((9, 1), (9, 2), (12, 3)))
    drawn = torch.arange(9) < 7
    negative = torch.rand(9, 12, generator=generator) < 0.6
    negative[3] = False  # an end without any
    found = info_nce(f[None], g[None], h[None], negative[None], drawn[None], 0.2)
    wanted = by_loops(f, g, h, negative, 0.2)[:7].mean()
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=0)
    for one, other in zip(
        torch.autograd.grad(found, (f, g, h)), torch.autograd.grad(wanted, (f, g, h)), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-14)


def test_negatives_are_far_rows_of_the_other_cloud() -> None:
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
        parts.append(by_loops(f[own], g[other][:n], g[other], torch.cdist(p, q) > 1.2, 0.2))
        far = torch.cdist(q[:n], p) > 1.2
        parts.append(by_loops(g[other][:n], f[own], f[own], far, 0.2))
    torch.testing.assert_close(value, torch.cat(parts).sum() / 30, rtol=1e-9, atol=0)
