"""The cells of a tensor in the order of its rows, and the voxel grid that holds them sorted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from pcnn.geometry import Kernel, KernelMap, VoxelGrid
from pcnn.geometry.kernel_map import outside_inference_mode
from pcnn.geometry.packing import check_bound, pack
from pcnn.maps.base import DEVICE_LAYOUTS, has_kernels
from pcnn.ops.engine import Engine
from pcnn.ops.sites import dilated_sites, output_sites

#: Axes that a tensor may have.
MOST_AXES = 3
#: Maps by `Kernel.key`.
_Maps = dict[object, KernelMap]


class SpconvError(ValueError, AssertionError):
    """A wrong argument; also an `AssertionError`, which spconv raises in its place."""


def require(fits: bool, message: str) -> None:
    """Raise a `SpconvError` with the message unless an argument fits."""
    if not fits:
        raise SpconvError(message)


class Sites:
    """Cells ``[N, 1 + d]`` in the rows of a tensor: in any order, as they were given.

    Levels and maps belong to the voxel grid of the cells, whose rows are sorted. Where the rows of
    the tensor are not, maps between grids are written in the tensors' rows, so that features stay
    where they are.
    """

    def __init__(
        self,
        indices: Tensor | None,  # [N, 1 + d] int32 (batch, axes); None: those of the grid
        spatial_shape: Sequence[int],
        batch_size: int,
        grid: VoxelGrid | None = None,
    ) -> None:
        self.spatial_shape, self.batch_size = list(spatial_shape), batch_size
        self._indices, self._grid = indices, grid
        self._version = _version_of(indices)
        #: ``[N]`` int32, row of the tensor for every row of the grid; ``None``: the same rows
        self.order: Tensor | None = None
        #: ``[N]`` int64, row of the grid for every row of the tensor
        self.rank: Tensor | None = None
        self._levels: dict[Kernel, Sites] = {}
        self._maps: WeakKeyDictionary[Sites, _Maps] = WeakKeyDictionary()

    @property
    def rows(self) -> int:
        """Number of cells N."""
        if self._indices is not None:
            return self._indices.shape[0]
        assert self._grid is not None
        return self._grid.rows

    @property
    def indices(self) -> Tensor:
        """``[N, 1 + d]`` int32 (batch, axes) of every row; one and the same object every time."""
        if self._indices is None:
            assert self._grid is not None
            coords = self._grid.coords[:, : 1 + len(self.spatial_shape)].contiguous()
            step = self._grid.tensor_stride[: len(self.spatial_shape)]
            if max(step) > 1:
                coords[:, 1:] //= torch.tensor(step, dtype=torch.int32, device=coords.device)
            self._indices, self._version = coords, _version_of(coords)
        return self._indices

    @property
    def grid(self) -> VoxelGrid:
        """The cells sorted; found again where the indices were written into since."""
        if self._grid is None or self._version != _version_of(self._indices):
            self._levels, self._maps = {}, WeakKeyDictionary()
            with outside_inference_mode():
                self._grid = self._sorted(self.indices)
            self._version = _version_of(self._indices)
        return self._grid

    def _sorted(self, indices: Tensor) -> VoxelGrid:
        """Grid of the cells, and the order of the rows; the host waits for the device once."""
        axes, device = len(self.spatial_shape), indices.device
        coords = indices.new_zeros(len(indices), 1 + MOST_AXES)
        coords[:, : 1 + axes] = indices
        keys, order = torch.sort(pack(coords))
        self.order = self.rank = None
        x, y, z = (*self.spatial_shape, *[1] * (MOST_AXES - axes))
        if len(keys):
            ascending = (order[1:] > order[:-1]).all()
            repeated = (keys[1:] == keys[:-1]).any()
            ends = torch.cat([torch.stack([ascending, repeated]), *torch.aminmax(indices, dim=0)])
            kept, twice, *found = ends.tolist()
            self._check(found[: 1 + axes], found[1 + axes :], bool(twice))
            if not kept:
                self.order, self.rank = order.to(torch.int32), torch.empty_like(order)
                self.rank[order] = torch.arange(len(order), device=device)
        return VoxelGrid(
            keys,
            self.batch_size,
            max(x, y, z) - 1,
            downsampling="reached",
            box=((0, 0, 0), (x - 1, y - 1, z - 1)),
            spatial_shape=(x, y, z),
            check=False,
        )

    def _check(self, low: list[int], high: list[int], twice: bool) -> None:
        """Refuse cells out of the volume, and rows of the same cell."""
        ends = [self.batch_size, *self.spatial_shape]
        for axis, (a, b, end) in enumerate(zip(low, high, ends, strict=True)):
            what = f"column {axis} of indices" + (" (the batch)" if axis == 0 else "")
            require(
                a >= 0 and b < end,
                f"{what} reaches from {a} to {b}, but batch_size and spatial_shape allow 0 to "
                f"{end - 1}; make spatial_shape or batch_size larger",
            )
        require(
            not twice,
            "indices hold a cell of a cloud more than once; join its rows first, for example with "
            "torch.unique(indices, dim=0, return_inverse=True)",
        )

    def reached(self, kernel: Kernel, spatial_shape: Sequence[int]) -> Sites:
        """Cells of the dense output that some triplet reaches, sorted."""
        grid = self.grid  # first: it drops what was found for other cells
        if kernel not in self._levels:
            derive = output_sites if kernel.is_strided else dilated_sites
            found = derive(grid, kernel)
            self._levels[kernel] = Sites(None, spatial_shape, self.batch_size, found)
        return self._levels[kernel]

    def generated(self, kernel: Kernel, spatial_shape: Sequence[int]) -> tuple[Sites, Sites]:
        """These cells on a tensor stride that the kernel's divides, and those it generates."""
        grid = self.grid
        if any(t % s for t, s in zip(grid.tensor_stride, kernel.stride, strict=True)):
            grid = _spaced(grid, kernel.stride)
        x, y, z = *spatial_shape, *[1] * (MOST_AXES - len(spatial_shape))
        unbounded = replace(grid, spatial_shape=None, check=False)
        fine = unbounded.generated(kernel)
        step = torch.tensor(fine.tensor_stride, device=fine.device)
        cells = torch.div(fine.coords[:, 1:], step, rounding_mode="floor")
        inside = ((cells >= 0) & (cells < torch.tensor((x, y, z), device=fine.device))).all(1)
        rows = inside.nonzero().squeeze(1)
        kept = replace(fine.at_rows(rows), spatial_shape=(x, y, z), check=False)
        here = Sites(self._indices, self.spatial_shape, self.batch_size, unbounded)
        here.order, here.rank = self.order, self.rank
        return here, Sites(None, spatial_shape, self.batch_size, kept)

    def map_to(self, out: Sites, kernel: Kernel, engine: Engine) -> KernelMap:
        """Kernel map from these cells (input) to ``out``, in the rows of both tensors; kept."""
        grid, target = self.grid, out.grid
        if self.order is None and out.order is None:
            return grid.kernel_map(target, kernel, engine)
        maps = self._maps.setdefault(out, {})
        if kernel.key not in maps:
            with outside_inference_mode():
                maps[kernel.key] = _renumbered(grid.kernel_map(target, kernel, engine), self, out)
        return maps[kernel.key]


def _version_of(indices: Tensor | None) -> int | None:
    """A number that changes when the indices are written into, where torch counts that."""
    return None if indices is None or indices.is_inference() else indices._version


def _renumbered(built: KernelMap, source: Sites, target: Sites) -> KernelMap:
    """A map between grids in the rows of the tensors: row i of a grid is called ``order[i]``."""
    # a map that is its own transpose stays so, as both of its sides get the same numbers
    (table,) = built.layout("table")  # [N_out, K]
    masks = built.layout("masks")[0] if built.has("masks") else None
    counts = built.layout("counts")[0] if built.has("counts") else None
    if source.order is not None:
        named = source.order.index_select(0, table.clamp_min(0).flatten()).view_as(table)
        table = torch.where(table >= 0, named, -1)
    if target.rank is not None:
        table = table.index_select(0, target.rank)
        masks = None if masks is None else masks.index_select(0, target.rank)
    derive = DEVICE_LAYOUTS if has_kernels(table.device) else None
    return KernelMap.from_table(table, built.n_in, masks, counts, built.symmetric, derive)


def _spaced(grid: VoxelGrid, scale: tuple[int, int, int]) -> VoxelGrid:
    """The same sites and rows on a tensor stride that is larger by a factor per axis."""
    x, y, z = (old * times for old, times in zip(grid.tensor_stride, scale, strict=True))
    coords = grid.coords.to(torch.int64)
    coords[:, 1:] *= torch.tensor(scale, device=grid.device)
    bound = grid.bound * max(scale)
    check_bound(bound, 0, "transposed convolution")
    keys = pack(coords)
    return VoxelGrid(keys, grid.batch_size, bound, (x, y, z), grid.downsampling, check=False)
