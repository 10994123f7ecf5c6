"""Triplets and products of a convolution, computed apart from the engines and in float64.

Only the relation ``in = stride * out + dilation * slot - padding`` is shared with what is checked;
the search, the products and their gradients are written here once more, the plain way. On native
points up to `EVERY_PAIR` pairs of points are all looked at; larger clouds take the search in torch,
which stands apart from the kernels of a GPU. Slots are computed from the offsets.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pcnn.geometry import Geometry, Kernel, PointSet, VoxelGrid, grid_of_cells
from pcnn.maps.radius_pairs import radius_pairs

Pair = tuple[Tensor, Tensor]  # rows j of the input, rows i of the output

#: Pairs of points among which neighbours are found by looking at all of them.
EVERY_PAIR = 4 * 10**9
#: Pairs looked at together.
CHUNK = 1 << 25


def triplets(source: Geometry, target: Geometry, kernel: Kernel) -> list[Pair]:
    """Rows (j, i) of every slot of a convolution on voxels, cell corners or native points.

    Args:
        source: input sites.
        target: output sites.
        kernel: on native points odd and cubic, with the usual padding.
    """
    if isinstance(source, VoxelGrid) and isinstance(target, VoxelGrid):
        return _between_voxels(source, target, kernel)
    assert isinstance(source, PointSet)
    assert isinstance(target, PointSet)
    if source.downsampling == "cell_origin":
        return _between_voxels(_voxels(source), _voxels(target), kernel)
    centres, reach = target.points_about(source), radius(source, kernel)
    if source.rows * target.rows <= EVERY_PAIR:
        i, j = every_pair(source.points, centres, reach)
    else:
        i, j = radius_pairs(source.points, None, centres, None, reach)
    slot = slots(source.points[j] - centres[i], source.grid_size[0], kernel)
    order = slot.argsort(stable=True)
    sizes = torch.bincount(slot, minlength=kernel.volume).tolist()
    return list(zip(j[order].split(sizes), i[order].split(sizes), strict=True))


def _between_voxels(source: VoxelGrid, target: VoxelGrid, kernel: Kernel) -> list[Pair]:
    """By binary search among mixed-radix cell numbers."""
    inputs, outputs = _cells(source), _cells(target)
    if not len(inputs) or not len(outputs):
        empty = torch.zeros(0, dtype=torch.int64, device=source.device)
        return [(empty, empty)] * kernel.volume
    low = inputs.min(0).values
    span = inputs.max(0).values - low + 1
    radix = torch.stack([span[1:].prod(), span[2:].prod(), span[3], torch.ones_like(span[3])])
    numbers, order = ((inputs - low) * radix).sum(1).sort()
    stride = torch.tensor((1, *kernel.stride), device=source.device)
    found = []
    for offset in kernel.offsets:
        place = outputs * stride + torch.tensor((0, *offset), device=source.device) - low
        inside = ((place >= 0) & (place < span)).all(1)
        wanted = (place * radix).sum(1)
        position = torch.searchsorted(numbers, wanted).clamp(max=len(numbers) - 1)
        hit = inside & (numbers[position] == wanted)
        found.append((order[position[hit]], hit.nonzero()[:, 0]))
    return found


def _cells(grid: VoxelGrid) -> Tensor:
    """Batch and coordinates ``[N, 4]`` int64 in units of the grid's own voxels."""
    step = torch.tensor((1, *grid.tensor_stride), device=grid.device)
    return torch.div(grid.coords.to(torch.int64), step, rounding_mode="floor")


def radius(source: PointSet, kernel: Kernel) -> float:
    """Radius of the ball that has the volume of the kernel's box [m]."""
    (size, *others), (edge, *edges) = kernel.size, source.grid_size
    if {size, *others} != {size} or {edge, *edges} != {edge} or not size % 2:
        raise ValueError(f"the kernel must be odd and cubic, over cubic cells, got {kernel}")
    if source.batch_size != 1:
        raise ValueError(f"the source must hold one cloud, got {source.batch_size}")
    # in this order of operations: the last bit of R decides about points on the boundary
    return float(edge * (3 * size**3 / (4 * math.pi)) ** (1 / 3))


def every_pair(points: Tensor, centres: Tensor, reach: float) -> tuple[Tensor, Tensor]:
    """Rows (i, j) of all pairs within reach, boundary included, by looking at every pair.

    Args:
        points: ``[N, 3]`` float32.
        centres: ``[M, 3]`` float32.
        reach: radius R; compared in float32, the sum of squares added x, y, z.
    """
    limit = torch.tensor(reach * reach, dtype=torch.float32, device=points.device)
    rows = max(1, CHUNK // max(1, len(points)))
    found = [torch.zeros(0, 2, dtype=torch.int64, device=points.device)]
    for start in range(0, len(centres), rows):
        squares = [
            (centres[start : start + rows, axis, None] - points[None, :, axis]).square_()
            for axis in range(3)
        ]
        near = ((squares[0] + squares[1]) + squares[2] <= limit).nonzero()
        found.append(near + torch.tensor([start, 0], device=near.device))
    both = torch.cat(found)
    return both[:, 0], both[:, 1]


def slots(offsets: Tensor, edge: float, kernel: Kernel) -> Tensor:
    """Slot ``[T]`` of offsets ``[T, 3]``: cells rounded half away from zero, clamped to the box."""
    cell = offsets / torch.tensor(edge, dtype=torch.float32, device=offsets.device)
    wide = cell.to(torch.float64)  # where adding a half is exact
    whole = torch.sign(wide) * torch.floor(wide.abs() + 0.5)
    half = kernel.size[0] // 2
    x, y, z = (whole.clamp(-half, half) + half).to(torch.int64).unbind(1)
    return (x * kernel.size[0] + y) * kernel.size[0] + z


def _voxels(points: PointSet) -> VoxelGrid:
    """Voxels of the cells of points, one in each; rows in the same order."""
    cells = points.cells.to(torch.int64)
    voxels = grid_of_cells(cells[:, 1:], cells[:, 0], points.batch_size)
    if voxels.rows != points.rows:
        raise ValueError(f"{points.rows} points lie in {voxels.rows} cells; give one per cell")
    return voxels


def output(pairs: list[Pair], x: Tensor, weight: Tensor, n_out: int) -> Tensor:
    """Output ``[n_out, C_out]`` of one convolution; arguments as in `products`."""
    x, weight = x.detach().double(), weight.detach().double()
    out = x.new_zeros(n_out, weight.shape[2])
    for slot, (j, i) in enumerate(pairs):
        out.index_add_(0, i, x[j] @ weight[slot])
    return out


def products(
    pairs: list[Pair], x: Tensor, weight: Tensor, grad: Tensor, groups: int = 1
) -> dict[str, Tensor]:
    """Output and gradients of one convolution in float64, by name: out, grad_x, grad_weight.

    Args:
        pairs: rows (j, i) of every slot.
        x: ``[N_in, C_in]``, any floating dtype.
        weight: ``[K, C_in / groups, C_out]``.
        grad: ``[N_out, C_out]``, gradient with respect to the output.
        groups: groups of channels.
    """
    dense = dense_weight(weight, groups).double()
    out = output(pairs, x, dense, grad.shape[0])
    x, grad = x.detach().double(), grad.detach().double()
    grad_x, grad_weight = torch.zeros_like(x), torch.zeros_like(dense)
    for slot, (j, i) in enumerate(pairs):
        grad_x.index_add_(0, j, grad[i] @ dense[slot].T)
        grad_weight[slot] = x[j].T @ grad[i]
    blocks = grad_weight.unflatten(2, (groups, -1)).unflatten(1, (groups, -1))
    of_groups = [blocks[:, group, :, group] for group in range(groups)]
    return {"out": out, "grad_x": grad_x, "grad_weight": torch.cat(of_groups, dim=2)}


def dense_weight(weight: Tensor, groups: int) -> Tensor:
    """Weights ``[K, C_in, C_out]`` of a convolution in groups: zero from one group to another."""
    blocks = weight.detach().chunk(groups, dim=2)
    return torch.stack([torch.block_diag(*slot) for slot in zip(*blocks, strict=True)])
