"""The rotations and translations that fit very many small sets of points, in registers.

A lane holds a set: Horn's symmetric 4 x 4 matrix of its covariance, the largest eigenvalue by
Newton's method, its eigenvector, the rotation of that quaternion. Plain torch takes some three
hundred launches for it, and a GPU's library decomposes one matrix after another.

Source: Horn 1987; the largest eigenvalue as Theobald 2005 (QCP) finds it.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from pcnn.kernels.triton_launch import TritonLauncher

SETS, WARPS = 32, 1
STEPS = 30  # Newton's method falls to the largest root from above; few are needed but at ties


@triton.jit
def cofactors(a, b, c, d, e, f, g, h, i, j):
    """Cofactors of the symmetric matrix of rows (a b c d), (b e f g), (c f h i), (d g i j)."""
    s01, s02, s03 = c * g - f * d, c * i - h * d, c * j - i * d
    s12, s13, s23 = f * i - h * g, f * j - i * g, h * j - i * i
    t01, t02, t03 = a * e - b * b, a * f - c * b, a * g - d * b
    t12 = b * f - c * e
    c00 = e * s23 - f * s13 + g * s12
    c01 = f * s03 - b * s23 - g * s02
    c02 = b * s13 - e * s03 + g * s01
    c03 = e * s02 - b * s12 - f * s01
    c11 = a * s23 - c * s03 + d * s02
    c12 = b * s03 - a * s13 - d * s01
    c13 = a * s12 - b * s02 + c * s01
    c22 = d * (b * g - d * e) - g * t03 + j * t01
    c23 = g * t02 - d * t12 - i * t01
    c33 = c * t12 - f * t02 + h * t01
    return c00, c01, c02, c03, c11, c12, c13, c22, c23, c33


@triton.jit
def longer(w, x, y, z, length, w1, x1, y1, z1):
    """The longer of two quaternions, and the square of its length."""
    other = w1 * w1 + x1 * x1 + y1 * y1 + z1 * z1
    more = other > length
    w, x = tl.where(more, w1, w), tl.where(more, x1, x)
    y, z = tl.where(more, y1, y), tl.where(more, z1, z)
    return w, x, y, z, tl.where(more, other, length)


@triton.jit(do_not_specialize=["sets"])
def fits_kernel(  # type: ignore[no-untyped-def]
    covariance_ptr,  # [S, 3, 3] float64
    source_ptr,  # [S, 3]
    target_ptr,  # [S, 3]
    rows_ptr,  # [S, 3, 4]
    sets,
    SETS: tl.constexpr,
    STEPS: tl.constexpr,
):
    """See `rigid_fits`."""
    place = tl.program_id(0) * SETS + tl.arange(0, SETS)
    there = place < sets
    entry = covariance_ptr + 9 * place
    xx = tl.load(entry, mask=there, other=0.0)
    yx = tl.load(entry + 1, mask=there, other=0.0)  # source y, target x
    zx = tl.load(entry + 2, mask=there, other=0.0)
    xy = tl.load(entry + 3, mask=there, other=0.0)
    yy = tl.load(entry + 4, mask=there, other=0.0)
    zy = tl.load(entry + 5, mask=there, other=0.0)
    xz = tl.load(entry + 6, mask=there, other=0.0)
    yz = tl.load(entry + 7, mask=there, other=0.0)
    zz = tl.load(entry + 8, mask=there, other=0.0)
    square = xx * xx + yx * yx + zx * zx + xy * xy + yy * yy + zy * zy
    square += xz * xz + yz * yz + zz * zz
    unit = tl.where(square > 0, 1 / tl.sqrt(tl.where(square > 0, square, 1.0)), 0.0)
    xx, yx, zx = unit * xx, unit * yx, unit * zx
    xy, yy, zy = unit * xy, unit * yy, unit * zy
    xz, yz, zz = unit * xz, unit * yz, unit * zz
    a, b, c, d = xx + yy + zz, yz - zy, zx - xz, xy - yx
    e, f, g = xx - yy - zz, xy + yx, zx + xz
    h, i, j = yy - xx - zz, yz + zy, zz - xx - yy
    # its characteristic polynomial: λ⁴ - 2 λ² + linear λ + constant, of a unit covariance
    linear = -8 * (xx * (yy * zz - yz * zy) - xy * (yx * zz - yz * zx) + xz * (yx * zy - yy * zx))
    c00, c01, c02, c03, _c, _c, _c, _c, _c, _c = cofactors(a, b, c, d, e, f, g, h, i, j)
    constant = a * c00 + b * c01 + c * c02 + d * c03
    value = tl.zeros_like(a) + 1.7320508075688774  # no sum of three singular values lies above
    for _ in range(STEPS):
        polynomial = ((value * value - 2.0) * value + linear) * value + constant
        slope = (4.0 * value * value - 4.0) * value + linear
        step = polynomial / tl.where(slope > 0, slope, 1.0)
        value -= tl.where((slope > 0) & (step > 0), step, 0.0)
    a, e, h, j = a - value, e - value, h - value, j - value
    # rows of the cofactors are multiples of the eigenvector; the longest one has the most digits
    c00, c01, c02, c03, c11, c12, c13, c22, c23, c33 = cofactors(a, b, c, d, e, f, g, h, i, j)
    length = c00 * c00 + c01 * c01 + c02 * c02 + c03 * c03
    w, x, y, z, length = longer(c00, c01, c02, c03, length, c01, c11, c12, c13)
    w, x, y, z, length = longer(w, x, y, z, length, c02, c12, c22, c23)
    w, x, y, z, length = longer(w, x, y, z, length, c03, c13, c23, c33)
    # all points in one place: any rotation fits, the identity is one
    open_turn = (length <= 0) | (square <= 0)
    unit = 1 / tl.sqrt(tl.where(open_turn, 1.0, length))
    w = tl.where(open_turn, 1.0, w * unit)
    x = tl.where(open_turn, 0.0, x * unit)
    y = tl.where(open_turn, 0.0, y * unit)
    z = tl.where(open_turn, 0.0, z * unit)
    from_x = tl.load(source_ptr + 3 * place, mask=there, other=0.0)
    from_y = tl.load(source_ptr + 3 * place + 1, mask=there, other=0.0)
    from_z = tl.load(source_ptr + 3 * place + 2, mask=there, other=0.0)
    for axis in tl.static_range(3):
        if axis == 0:
            to_x, to_y, to_z = (
                w * w + x * x - y * y - z * z,
                2 * (x * y - w * z),
                2 * (x * z + w * y),
            )
        elif axis == 1:
            to_x, to_y, to_z = (
                2 * (x * y + w * z),
                w * w - x * x + y * y - z * z,
                2 * (y * z - w * x),
            )
        else:
            to_x, to_y, to_z = (
                2 * (x * z - w * y),
                2 * (y * z + w * x),
                w * w - x * x - y * y + z * z,
            )
        goal = tl.load(target_ptr + 3 * place + axis, mask=there, other=0.0)
        shift = goal - to_x * from_x - to_y * from_y - to_z * from_z
        row = rows_ptr + 12 * place + 4 * axis
        tl.store(row, to_x, mask=there)
        tl.store(row + 1, to_y, mask=there)
        tl.store(row + 2, to_z, mask=there)
        tl.store(row + 3, shift, mask=there)


def rigid_fits(covariance: Tensor, middle_source: Tensor, middle_target: Tensor) -> Tensor:
    """Rigid transforms that fit sets of matched points best."""
    sets = len(covariance)
    rows = covariance.new_empty(sets, 3, 4)
    given = (one.contiguous() for one in (covariance, middle_source, middle_target))
    _launch((triton.cdiv(sets, SETS), 1), (*given, rows), (sets,), (SETS, STEPS), WARPS)
    return rows


_launch = TritonLauncher(fits_kernel)
