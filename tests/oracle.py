"""The right results, computed without the package: dictionaries and float64 loops in numpy.

in = stride * out + dilation * slot - padding, slots with x slowest and z fastest.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import numpy as np

Site = tuple[int, int, int, int]
Axes = Sequence[int]


def slots(size: Axes) -> list[tuple[int, ...]]:
    return list(itertools.product(*(range(k) for k in size)))


def triplets(
    inputs: Iterable[Sequence[int]],
    outputs: Iterable[Sequence[int]],
    size: Axes,
    stride: Axes,
    dilation: Axes,
    padding: Axes,
    tensor_stride: Axes = (1, 1, 1),
) -> set[tuple[int, int, int]]:
    """All (i, j, k); coordinates of both sides in level-0 voxels."""
    rows = {tuple(int(v) for v in site): row for row, site in enumerate(inputs)}
    found = set()
    for i, out in enumerate(outputs):
        batch, *position = (int(v) for v in out)
        own = [p // (t * s) for p, t, s in zip(position, tensor_stride, stride, strict=True)]
        for k, slot in enumerate(slots(size)):
            wanted = [
                (s * o + d * q - p) * t
                for s, o, d, q, p, t in zip(
                    stride, own, dilation, slot, padding, tensor_stride, strict=True
                )
            ]
            j = rows.get((batch, *wanted))
            if j is not None:
                found.add((i, j, k))
    return found


def floor_sites(sites: Iterable[Sequence[int]], step: Axes) -> list[Site]:
    """Sorted coarse sites of every site."""
    coarse = {
        (int(b), *((int(v) // s) * s for v, s in zip(position, step, strict=True)))
        for b, *position in sites
    }
    return sorted(coarse)  # type: ignore[arg-type]


def convolution(
    x: np.ndarray, weight: np.ndarray, edges: set[tuple[int, int, int]], n_out: int, groups: int = 1
) -> np.ndarray:
    """out[i] += x[j] @ W[k] in float64; weight [K, C_in / groups, C_out], group-major outputs."""
    _, c_in, c_out = weight.shape
    out = np.zeros((n_out, c_out))
    width = c_out // groups
    for i, j, k in edges:
        for g in range(groups):
            own = slice(g * width, (g + 1) * width)
            out[i, own] += x[j, g * c_in : (g + 1) * c_in] @ weight[k][:, own]
    return out
