"""The loss of a step, from a network's raw outputs on, against FCGF's in numpy, slopes by hand."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from pcnn.losses import HardestContrastive
from pcnn.losses.descriptors import drawn
from pcnn.registration.descriptor import unit_length
from tests.losses.pairs import pair_batch

Array = NDArray[np.float64]


def fcgf(
    raw: tuple[Array, Array],
    pairs: NDArray[np.int64],
    anchors: NDArray[np.int64],
    pools: tuple[NDArray[np.int64], NDArray[np.int64]],
) -> tuple[float, Array, Array]:
    """Loss and its gradients by the raw features, written out by hand; masks by hashes."""
    norms = [np.linalg.norm(side, axis=1, keepdims=True) for side in raw]
    f, g = (side / norm for side, norm in zip(raw, norms, strict=True))
    slopes = np.zeros_like(f), np.zeros_like(g)
    seed = max(len(f), len(g))
    listed = pairs[:, 0] + pairs[:, 1] * seed
    i, j = anchors.T
    gap = f[i] - g[j]
    over = (gap**2).sum(1) - 0.1
    loss = np.maximum(over, 0).mean()
    push = 2 * gap * (over > 0)[:, None] / len(anchors)
    np.add.at(slopes[0], i, push)
    np.add.at(slopes[1], j, -push)
    for side, own, far, row in ((0, f, g, i), (1, g, f, j)):
        pool = pools[1 - side]
        every = np.linalg.norm(own[row][:, None] - far[pool][None], axis=2)
        near = pool[every.argmin(1)]
        hashes = row + near * seed if side == 0 else near + row * seed
        kept = ~np.isin(hashes, listed)
        row, near = row[kept], near[kept]
        gap = own[row] - far[near]
        distance = np.sqrt((gap**2).sum(1) + 1e-7)
        hinge = np.maximum(1.4 - distance, 0)
        loss += 0.5 * (hinge**2).mean()
        push = -(hinge / distance / len(row))[:, None] * gap
        np.add.at(slopes[side], row, push)
        np.add.at(slopes[1 - side], near, -push)
    by_raw = [
        (slope - unit * (unit * slope).sum(1, keepdims=True)) / norm
        for slope, unit, norm in zip(slopes, (f, g), norms, strict=True)
    ]
    return float(loss), by_raw[0], by_raw[1]


@pytest.mark.parametrize("seed", range(2))
def test_equals_numpy_with_gradients_by_hand(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    sources = [torch.rand(n, 3, generator=generator) * 4 for n in (40, 25)]
    targets = [cloud.flip(0)[:-3] + 0.1 for cloud in sources]
    batch = pair_batch(sources, targets, 1.0)
    raw = [
        (3 * torch.randn(n, 4, generator=generator, dtype=torch.float64)).requires_grad_()
        for n in (65, 59)
    ]
    module = HardestContrastive(positives=30, candidates=12)
    torch.manual_seed(seed)
    value = module(unit_length(raw[0]), unit_length(raw[1]), batch)
    value.backward()

    torch.manual_seed(seed)  # the same draws
    cpu = torch.device("cpu")
    assert len(batch.positives) > 60
    anchors = batch.positives[drawn(len(batch.positives), 60, cpu)]
    pools = drawn(65, 24, cpu).numpy(), drawn(59, 24, cpu).numpy()
    loss, *slopes = fcgf(
        (raw[0].detach().numpy(), raw[1].detach().numpy()),
        batch.positives.numpy(),
        anchors.numpy(),
        pools,
    )
    assert loss > 0.1
    assert float(value.detach()) == pytest.approx(loss, rel=1e-12)
    for side, slope in zip(raw, slopes, strict=True):
        np.testing.assert_allclose(side.grad.numpy(), slope, rtol=1e-9, atol=1e-14)
