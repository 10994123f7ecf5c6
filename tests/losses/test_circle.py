"""The circle loss against its formula, one end at a time; what batches without matches do."""

import torch
from torch import Tensor

from pcnn.losses.circle import Circle, circle
from tests.losses.pairs import pair_batch, unit_rows


def of_ends(distance: Tensor, positive: Tensor, negative: Tensor, scale: float) -> list[Tensor]:
    """Predator's Eq. 8 of every row that has both kinds; margins 0.1 and 1.4."""
    each = []
    for row, near, far in zip(distance, positive, negative, strict=True):
        if not near.any() or not far.any():
            continue
        pull = sum(
            torch.exp(scale * max(float(x.detach()) - 0.1, 0) * (x - 0.1)) for x in row[near]
        )
        push = sum(torch.exp(scale * max(1.4 - float(x.detach()), 0) * (1.4 - x)) for x in row[far])
        each.append(torch.log(1 + pull * push) / scale)
    return each


def mean_of_both(rows: list[Tensor], columns: list[Tensor]) -> Tensor:
    return (torch.stack(rows).mean() + torch.stack(columns).mean()) / 2


def kinds(k: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    draw = torch.rand(k, k, generator=generator)
    positive, negative = draw < 0.2, draw > 0.5
    positive[0], negative[1] = False, False  # ends of one kind alone
    positive[:, 2] = False
    return positive, negative


def test_equals_the_formula_with_gradients() -> None:
    seed = 0
    generator = torch.Generator().manual_seed(seed)
    distance = torch.rand(9, 9, generator=generator, dtype=torch.float64) * 2
    distance.requires_grad_()
    positive, negative = kinds(9, seed)
    found = circle(distance[None], positive[None], negative[None], 3.0)
    wanted = mean_of_both(
        of_ends(distance, positive, negative, 3.0), of_ends(distance.T, positive.T, negative.T, 3.0)
    )
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=0)
    (one,), (other,) = (torch.autograd.grad(value, distance) for value in (found, wanted))
    torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-15)
    assert not one[0, positive[0] | negative[0]].isnan().any()


def test_module_reads_places_of_the_whole_batch() -> None:
    generator = torch.Generator().manual_seed(3)
    sources = [torch.rand(n, 3, generator=generator) * 3 for n in (9, 6)]
    targets = [s.flip(0)[:5] + 0.1 for s in sources]
    batch = pair_batch(sources, targets, 0.6, voxel_size=0.4)
    # the same clouds in frames of their own
    turn = torch.tensor([[0.0, -1, 0, 2], [1, 0, 0, -1], [0, 0, 1, 5], [0, 0, 0, 1]])
    batch.transforms[1] = turn.double()
    moved = batch.target_places[5:] @ turn[:3, :3].T + turn[:3, 3]
    batch.target_places = torch.cat([batch.target_places[:5], moved])
    f, g = unit_rows(15, 8, 1), unit_rows(10, 8, 2)
    value = Circle(1.5, 3.0, scale=4.0)(f, g, batch)
    ends: tuple[list[Tensor], list[Tensor]] = ([], [])
    for first, last in ((0, 1), (1, 2)):
        rows = slice(*batch.positive_offsets[[first, last]].tolist())
        i, j = batch.positives[rows].unbind(1)
        gap = torch.cdist(batch.source_places[i], torch.cat(targets)[j])
        distance, near, far = torch.cdist(f[i], g[j]), gap <= 1.5 * 0.4, gap > 3.0 * 0.4
        ends[0].extend(of_ends(distance, near, far, 4.0))
        ends[1].extend(of_ends(distance.T, near.T, far.T, 4.0))
    torch.testing.assert_close(value, mean_of_both(*ends), rtol=1e-6, atol=1e-9)
