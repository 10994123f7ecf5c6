"""Windows of sites along space-filling curves, for attention inside each of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pcnn.geometry import Geometry, PointSet
from pcnn.ops.devoxelize import on_device_of
from pcnn.ops.space_curves import BITS, hilbert, z_order

#: Curves along which windows are cut: z-order and Hilbert, each also with x and y exchanged.
ORDERS = ("z", "z-transposed", "hilbert", "hilbert-transposed")


@dataclass(frozen=True, eq=False)
class Windows:
    """Sites of every window of a geometry, along each of `ORDERS`; nothing waits for the device.

    A cloud is cut into windows of W sites along a curve. Where its sites do not fill the last one,
    that window begins earlier and so is full too: its first sites serve as keys there and have
    their own result in the window before. A cloud of fewer than W sites is one window. The host
    does not know the number of sites of a cloud, so there are windows to spare, whose results
    are of no site.
    """

    rows: Tensor  # [4, M, W] int64, site in every place of a window; any, where none is
    there: Tensor  # [M, W] bool, whether a place counts as a key; all do in a window to spare
    place: Tensor  # [4, N] int64 in 0..M * W - 1, where the result of every site stands
    positions: Tensor

    @staticmethod
    def of(geometry: Geometry, size: int, table: Tensor) -> Windows:
        """Cut the sites of a geometry into windows."""
        size, many, clouds = min(size, geometry.rows), geometry.rows, geometry.batch_size
        batch = geometry.batch_index.clamp(max=clouds)  # spare rows are behind the last cloud
        cells, positions = _places(geometry, batch)
        straight = z_order(cells)
        x, y, z = cells.unbind(1)
        turned = z_order(torch.stack([y, x, z], dim=1))
        codes = [straight, turned, hilbert(straight, table), hilbert(turned, table)]
        order = (torch.stack(codes) | (batch << 3 * BITS)).argsort(dim=1, stable=True)  # [4, N]

        offsets = geometry.batch_offsets  # [B + 1]
        lengths = offsets.diff()
        last = ((lengths + size - 1) // size).cumsum(0)  # windows up to the end of every cloud
        start = torch.nn.functional.pad(last, (1, 0))  # [B + 1]
        window = torch.arange(many // size + clouds, device=batch.device)
        cloud = torch.searchsorted(last, window, right=True)  # B of a window to spare
        offset, length = offsets[cloud], torch.nn.functional.pad(lengths, (0, 1))[cloud]
        first = torch.minimum((window - start[cloud]) * size, (length - size).clamp(min=0))
        slots = torch.arange(size, device=batch.device)
        position = ((offset + first)[:, None] + slots).clamp(max=many - 1)  # [M, W]
        there = (slots < length[:, None]) | (cloud == clouds)[:, None]

        along = torch.arange(many, device=batch.device)  # on the curve; clouds follow one another
        own = start[batch] + (along - offsets[batch]) // size
        own = own.clamp(max=len(window) - 1)  # of spare rows
        flat = own * size + (along - offset[own] - first[own]).clamp(0, size - 1)
        place = torch.empty_like(order).scatter_(1, order, flat.expand_as(order))
        return Windows(order[:, position], there, place, positions)

    def shuffled(self) -> Windows:
        """The same in a random order of the curves, drawn on the device."""
        order = torch.rand(len(ORDERS), device=self.rows.device).argsort()
        rows, place = self.rows.index_select(0, order), self.place.index_select(0, order)
        return replace(self, rows=rows, place=place)


def _places(geometry: Geometry, batch: Tensor) -> tuple[Tensor, Tensor]:
    """Cells ``[N, 3]`` int64 and places in them ``[N, 3]`` float32, from the lowest of a cloud."""
    coords = geometry.coords[:, 1:].to(torch.int64)
    if isinstance(geometry, PointSet):
        cells = coords
        cloud = batch.clamp(max=geometry.batch_size - 1)
        start = (geometry.corners - geometry.origins)[cloud]  # [N, 3]
        inside = (geometry.points.to(torch.float64) - start) / on_device_of(
            start, geometry.voxel_size
        )
    else:
        cells = coords // on_device_of(coords, geometry.tensor_stride)
        inside = cells.to(torch.float64)
    lowest = cells.new_full((geometry.batch_size + 1, 3), 1 << BITS)
    lowest = lowest.scatter_reduce_(0, batch[:, None].expand(-1, 3), cells, "amin")[batch]
    return cells - lowest, (inside - lowest).to(torch.float32)
