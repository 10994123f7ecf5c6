"""Scores of transforms, on a GPU, or with TRITON_INTERPRET=1 on a CPU."""

import pytest
import torch

from pcnn.registration.score_kernel import hypothesis_scores
from tests.kernels.triton.rows import DEVICE


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


def test_nothing_to_score() -> None:
    none, some = torch.zeros(0, 3, device=DEVICE), torch.eye(4, device=DEVICE)[None]
    inliers, squares = hypothesis_scores(some, none, none, 1.0)
    assert inliers.tolist() == [0]
    assert squares.tolist() == [0]
    assert hypothesis_scores(some[:0], some[0, :, :3], some[0, :, :3], 1.0)[0].shape == (0,)
