"""Scores of rigid transforms over matched points, summed in registers.

Plain torch goes axis by axis over ``[S, M]`` residuals and moves some thirty times as many bytes
through memory as there are residuals. Here a program holds a block of transforms, walks over all
matches, and writes two numbers a transform.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from pcnn.kernels.triton_launch import TritonLauncher

TRANSFORMS, MATCHES, WARPS = 32, 64, 4


@triton.jit(do_not_specialize=["transforms", "matches"])
def scores_kernel(  # type: ignore[no-untyped-def]
    transforms_ptr,  # [12, S]: rows of the first three of a 4 x 4 matrix
    source_ptr,  # [3, M]
    target_ptr,  # [3, M]
    inliers_ptr,  # [S] int32
    squares_ptr,  # [S]
    transforms,
    matches,
    TRANSFORMS: tl.constexpr,
    MATCHES: tl.constexpr,
):
    """See `hypothesis_scores`."""
    row = tl.program_id(0) * TRANSFORMS + tl.arange(0, TRANSFORMS)
    exists = row < transforms
    column = tl.arange(0, MATCHES)
    inliers = tl.zeros((TRANSFORMS,), dtype=tl.int32)
    squares = tl.zeros((TRANSFORMS,), dtype=tl.float32)
    step = tl.cast(transforms, tl.int64)
    length = tl.cast(matches, tl.int64)
    for first in range(0, matches, MATCHES):
        match = first + column
        there = match < matches
        x = tl.load(source_ptr + match, mask=there, other=0.0)
        y = tl.load(source_ptr + length + match, mask=there, other=0.0)
        z = tl.load(source_ptr + 2 * length + match, mask=there, other=0.0)
        square = tl.zeros((TRANSFORMS, MATCHES), dtype=tl.float32)
        for axis in tl.static_range(3):
            entry = transforms_ptr + 4 * axis * step + row
            to_x = tl.load(entry, mask=exists, other=0.0)
            to_y = tl.load(entry + step, mask=exists, other=0.0)
            to_z = tl.load(entry + 2 * step, mask=exists, other=0.0)
            shift = tl.load(entry + 3 * step, mask=exists, other=0.0)
            place = tl.load(target_ptr + axis * length + match, mask=there, other=0.0)
            gap = shift[:, None] - place[None, :]
            gap += to_x[:, None] * x[None, :]
            gap += to_y[:, None] * y[None, :]
            gap += to_z[:, None] * z[None, :]
            square += gap * gap
        near = (square < 1.0) & there[None, :]
        inliers += tl.sum(near.to(tl.int32), 1)
        squares += tl.sum(tl.where(near, square, 0.0), 1)
    tl.store(inliers_ptr + row, inliers, mask=exists)
    tl.store(squares_ptr + row, squares, mask=exists)


def hypothesis_scores(
    transforms: Tensor, source: Tensor, target: Tensor, distance: float
) -> tuple[Tensor, Tensor]:
    """Count the matches that every transform takes to within a distance, and sum their residuals.

    ``inliers[s] = #{m : |R_s x_m + t_s - y_m| < distance}``, and ``squares[s]`` the sum of
    ``|R_s x_m + t_s - y_m|^2 / distance^2`` over them. Products are float32, never TF32.
    """
    number, matches = transforms.shape[0], source.shape[0]
    inliers = torch.zeros(number, dtype=torch.int32, device=source.device)
    squares = torch.zeros(number, device=source.device)
    if not number or not matches:
        return inliers, squares
    # lengths in units of the distance: the kernel compares with 1
    units = transforms.new_tensor([1, 1, 1, distance], dtype=torch.float64)
    rows = (transforms[:, :3].double() / units).reshape(number, 12)
    scaled = ((side.double() / distance).float().t().contiguous() for side in (source, target))
    _launch(
        (triton.cdiv(number, TRANSFORMS), 1),
        (rows.float().t().contiguous(), *scaled, inliers, squares),
        (number, matches),
        (TRANSFORMS, MATCHES),
        WARPS,
    )
    return inliers, squares


_launch = TritonLauncher(scores_kernel)
