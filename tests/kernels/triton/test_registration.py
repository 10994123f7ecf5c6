"""Rigid fits, on a GPU, or with TRITON_INTERPRET=1 on a CPU."""

import torch

from pcnn.registration.fit_kernel import rigid_fits
from pcnn.registration.rigid_fit import turned_onto
from tests.kernels.triton.conftest import DEVICE


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
