"""Scores of transforms and rigid fits, on a GPU, or with TRITON_INTERPRET=1 on a CPU."""

import pytest
import torch

from pcnn.registration.fit_kernel import rigid_fits
from pcnn.registration.rigid_fit import turned_onto
from pcnn.registration.score_kernel import hypothesis_scores
from tests.kernels.triton.conftest import DEVICE


@pytest.mark.parametrize("number", [1, 32, 45])
@pytest.mark.parametrize("matches", [1, 64, 130])
def test_scores_are_those_of_all_residuals(number: int, matches: int) -> None:
    torch.manual_seed(number + matches)
    turns = torch.linalg.qr(torch.randn(number, 3, 3, dtype=torch.float64))[0]
    shifts = 0.1 * torch.randn(number, 3, 1, dtype=torch.float64)
    last = torch.tensor([0.0, 0, 0, 1], dtype=torch.float64).expand(number, 1, 4)
    transforms = torch.cat((torch.cat((turns, shifts), 2), last), 1)
    source, target = torch.randn(2, matches, 3)
    target[: matches // 2 + 1] = source[: matches // 2 + 1] @ turns[0].float().t()
    moved = (
        torch.einsum("sij,mj->smi", transforms[:, :3, :3], source.double()) + shifts[:, None, :, 0]
    )
    square = (moved - target.double()).square().sum(2) / 0.5**2  # [S, M]
    near = square < 1
    given = transforms.to(DEVICE, copy=True)
    found = hypothesis_scores(given, source.to(DEVICE), target.to(DEVICE), 0.5)
    assert torch.equal(given.cpu(), transforms)
    assert not ((square - 1).abs() < 1e-5).any()  # no residual is on the edge
    assert torch.equal(found[0].cpu().long(), near.sum(1))
    wanted = torch.where(near, square, 0).sum(1)
    torch.testing.assert_close(found[1].cpu().double(), wanted, rtol=1e-5, atol=1e-5)
    assert int(found[0].max()) > 0


def test_fits_are_those_of_a_decomposition() -> None:
    generator = torch.Generator().manual_seed(0)
    for sets in (1, 45):
        p, q = torch.randn(2, sets, 4, 3, generator=generator, dtype=torch.float64)
        turn = torch.linalg.qr(torch.randn(sets, 3, 3, generator=generator, dtype=torch.float64))[0]
        q = p @ (turn * torch.linalg.det(turn)[:, None, None]).mT + 0.05 * q
        scale = torch.logspace(-4, 4, sets, dtype=torch.float64)[:, None, None]
        p, q = scale * p, scale * q
        if sets > 1:
            p[-1], q[-1] = 1, 2  # one place
        middles = p.mean(1), q.mean(1)
        covariance = (q - middles[1][:, None]).mT @ (p - middles[0][:, None])
        found = rigid_fits(*(one.to(DEVICE) for one in (covariance, *middles))).cpu()
        expected = turned_onto(covariance, *middles)
        torch.testing.assert_close(found[..., :3], expected[..., :3], atol=1e-9, rtol=0)
        torch.testing.assert_close(found[..., 3], expected[..., 3], atol=1e-12, rtol=1e-9)
    none = torch.zeros(0, 3, dtype=torch.float64, device=DEVICE)
    assert rigid_fits(none[:, :, None].expand(-1, -1, 3), none, none).shape == (0, 3, 4)
    found = hypothesis_scores(torch.eye(4, device=DEVICE)[None], none.float(), none.float(), 1.0)
    assert [one.tolist() for one in found] == [[0], [0]]
