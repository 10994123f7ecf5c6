"""Features plus a geometry; nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, TypeAlias

import torch
from torch import Tensor

from pcnn.geometry import Geometry, VoxelGrid
from pcnn.geometry.checks import require_tensors
from pcnn.geometry.kernel_map import one_line
from pcnn.geometry.kernel_slots import Triple, triple
from pcnn.geometry.voxel_grid import require_voxels
from pcnn.rowwise import acts_by_row, batch_norm


def _operator(
    function: Callable[[Tensor, Any], Tensor],
) -> Callable[[SparseTensor, Operand], SparseTensor]:
    return lambda own, other: own._combined(function, other)


@dataclass(frozen=True, eq=False)
class SparseTensor:
    """Features on the sites of a geometry.

    ``+ - * / **`` work site by site with a tensor on the same geometry, a number, and a plain
    tensor that broadcasts to ``[N, C]``. Pointwise functions and modules of torch (``torch.exp``,
    ``torch.softmax`` over the channels, activations, `Linear`, dropout, norms of rows, and
    `BatchNorm1d` over the sites) take it and act on the features, also in `torch.nn.Sequential`.

    Args:
        features: ``[N, C]``, row n belongs to site n.
        geometry: the sites.

    Raises:
        TypeError: features that are no tensor, or a geometry that is none.
        ValueError: features of another shape or on another device than the geometry.
    """

    features: Tensor
    geometry: Geometry

    #: NumPy leaves operators with its scalars on the left to this class
    __array_ufunc__ = None

    def __post_init__(self) -> None:
        # every layer makes one of these: each property that is asked for once counts
        features, geometry = self.features, self.geometry
        if type(features) is not Tensor and not isinstance(features, Tensor):
            require_tensors(features=features)
        if not isinstance(geometry, Geometry):
            raise TypeError(
                f"geometry must be a VoxelGrid or a PointSet, got {type(geometry).__name__}; "
                "pcnn.voxelize and pcnn.native_points make tensors of points"
            )
        keys, shape = geometry.keys, features.shape
        if len(shape) != 2 or shape[0] != keys.shape[0]:
            raise ValueError(
                f"features must be [{keys.shape[0]}, C] to match the geometry, got {tuple(shape)}"
            )
        if features.device != keys.device:
            raise ValueError(f"features are on {features.device}, their geometry on {keys.device}")

    def __repr__(self) -> str:
        features = f"[{len(self)}, {self.channels}] {str(self.dtype).removeprefix('torch.')}"
        return one_line(self, features=features, geometry=self.geometry)

    def __len__(self) -> int:
        return self.geometry.rows

    def __bool__(self) -> bool:
        return True  # a tensor without sites is there, too: ``if skip`` asks whether one is given

    @classmethod
    def __torch_function__(
        cls,
        function: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Pointwise functions of torch, and what pointwise modules of `torch.nn` call."""
        x, others, kwargs = args[0] if args else None, args[1:], kwargs or {}
        if isinstance(x, SparseTensor):
            if function is torch.nn.functional.batch_norm:
                count = x.geometry.count
                return x.replace(batch_norm(x.features, *others, **kwargs, count=count))
            if acts_by_row(function, others, kwargs):
                return x.replace(function(x.features, *others, **kwargs))
        name = getattr(function, "__name__", function)
        raise TypeError(
            f"torch's {name} takes no SparseTensor with these arguments: call it on the features, "
            f"x.replace({name}(x.features)); pcnn.nn has operations on sites"
        )

    def dim(self) -> int:
        """2, the axes of the features: norms of `torch.nn` ask for it."""
        return 2

    @property
    def shape(self) -> torch.Size:
        """``[N, C]``, sites and channels."""
        return torch.Size((self.geometry.rows, self.channels))

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the features."""
        return self.features.dtype

    @property
    def device(self) -> torch.device:
        """Device of features and sites."""
        return self.geometry.device

    @property
    def coords(self) -> Tensor:
        """``[N, 4]`` int32 (batch, x, y, z); as in `Geometry.coords`."""
        return self.geometry.coords

    @property
    def batch_size(self) -> int:
        """Number of clouds, empty ones included."""
        return self.geometry.batch_size

    @property
    def tensor_stride(self) -> Triple:
        """Spacing of the sites along x, y and z, in cells of the finest level."""
        return self.geometry.tensor_stride

    @property
    def channels(self) -> int:
        """Number of channels C."""
        return self.features.shape[1]

    def replace(self, features: Tensor) -> SparseTensor:
        """Return a tensor with other features on the same sites."""
        return SparseTensor(features, self.geometry)

    def to(
        self,
        device: torch.device | str | torch.dtype | None = None,
        dtype: torch.dtype | None = None,
        non_blocking: bool = False,
    ) -> SparseTensor:
        """Return the tensor on another device or with features of another dtype.

        On another device the levels and maps of the geometry are made again. A dtype may stand in
        place of the device.
        """
        if isinstance(device, torch.dtype):
            device, dtype = None, device
        place = self.geometry.device if device is None else device
        features = self.features.to(place, dtype, non_blocking=non_blocking)
        return SparseTensor(features, self.geometry.to(features.device, non_blocking))

    def float(self) -> SparseTensor:
        """Return the tensor with float32 features."""
        return self.to(torch.float32)

    def half(self) -> SparseTensor:
        """Return the tensor with float16 features."""
        return self.to(torch.float16)

    def detach(self) -> SparseTensor:
        """Return the tensor with features that no gradient flows through."""
        return self.replace(self.features.detach())

    def pin_memory(self) -> SparseTensor:
        """Return the tensor in page-locked memory."""
        return SparseTensor(self.features.pin_memory(), self.geometry.pin_memory())

    @staticmethod
    def collate(tensors: Sequence[SparseTensor]) -> SparseTensor:
        """Join tensors of single clouds into one batch, in the order given.

        Raises:
            ValueError: no tensor, one of several clouds, other channels, or geometries that do not
                join (`VoxelGrid.collate`, `PointSet.collate`).
        """
        channels = {tensor.channels for tensor in tensors}
        kinds = {type(tensor.geometry) for tensor in tensors}
        if len(channels) > 1 or len(kinds) > 1:
            raise ValueError(
                f"a batch needs tensors of one kind with the same channels, got {sorted(channels)} "
                f"channels on {', '.join(sorted(kind.__name__ for kind in kinds))}"
            )
        geometries: list[Any] = [tensor.geometry for tensor in tensors]
        kind = type(geometries[0]) if geometries else VoxelGrid  # which refuses an empty list
        joined = kind.collate(geometries)
        return SparseTensor(torch.cat([tensor.features for tensor in tensors]), joined)

    def at_points(self) -> Tensor:
        """Features ``[P, C]`` of the row of every point the finest geometry was made from.

        On a coarser level a point has the features of the cell that holds it.

        Raises:
            ValueError: no inverses lead from this geometry back to points.
        """
        return self.features[self.geometry.point_rows()]

    def dense(
        self, shape: int | Sequence[int] | None = None, min_coord: int | Sequence[int] | None = None
    ) -> Tensor:
        """Features of voxels as a dense volume ``[B, C, X, Y, Z]``, channels last in memory.

        Cell (i, j, k) is the site ``min_coord + tensor_stride * (i, j, k)``; cells without a site
        are 0, and sites outside of the volume are left out. Gradients flow to the features. With
        both arguments nothing waits for the device, otherwise the host waits once for the extent.

        Args:
            shape: number of cells along x, y and z; ``None``: up to the highest coordinates.
            min_coord: coordinate of the first cell in level-0 voxels, a multiple of the tensor
                stride; ``None``: the lowest coordinate of all clouds on every axis.

        Raises:
            TypeError: native points.
            ValueError: no integers for three axes, or a corner that is no multiple of the stride.
        """
        grid = require_voxels(self.geometry, "dense")
        low = None if min_coord is None else triple(min_coord, "min_coord", -(1 << 63))
        size = None if shape is None else triple(shape, "shape", 0)
        stride, clouds, channels = grid.tensor_stride, grid.batch_size, self.channels
        if low is None or size is None:
            sites = grid.coords[: grid.rows if grid.count is None else int(grid.count), 1:]
            ends = torch.stack(sites.aminmax(dim=0)).tolist() if len(sites) else ([0] * 3, [-1] * 3)
            low = low or triple(ends[0], "min_coord", -(1 << 63))
            axes = zip(low, ends[1], stride, strict=True)
            size = size or triple([max(0, (v - u) // step + 1) for u, v, step in axes], "shape", 0)
        if any(value % step for value, step in zip(low, stride, strict=True)):
            raise ValueError(
                f"min_coord must be a multiple of the tensor stride {stride}, in level-0 voxels as "
                f"coords are, got {low}"
            )
        place, *coords = grid.coords.to(torch.int64).unbind(1)
        inside = place < clouds
        # numbers of the host go into kernels: as a tensor they would be copied, which waits
        for site, first, step, cells in zip(coords, low, stride, size, strict=True):
            own = torch.div(site - first, step, rounding_mode="floor")
            inside = inside & (own >= 0) & (own < cells)
            place = place * cells + own
        cells = clouds * math.prod(size)
        place = torch.where(inside, place, cells)  # sites outside fall on a spare cell at the end
        volume = self.features.new_zeros(cells + 1, channels).index_add(0, place, self.features)
        return volume[:-1].view(clouds, *size, channels).permute(0, 4, 1, 2, 3)

    def __neg__(self) -> SparseTensor:
        return self.replace(-self.features)

    def __abs__(self) -> SparseTensor:
        return self.replace(self.features.abs())

    def _combined(self, operator: Callable[[Tensor, Any], Tensor], other: object) -> SparseTensor:
        """Features of an operator with an operand of any kind that arithmetic takes."""
        if isinstance(other, SparseTensor):
            check_same_sites(self, other)
            other = other.features
        elif isinstance(other, Tensor):
            rows = other.shape[0] if other.ndim == 2 else 1
            channels = other.shape[-1] if other.ndim else 1
            alike = channels == self.channels or channels == 1 or self.channels == 1
            if other.ndim > 2 or (rows != 1 and rows != len(self)) or not alike:
                raise ValueError(
                    f"a tensor next to features {list(self.shape)} must be a number, [C], [N, 1] "
                    f"or [N, C], got {list(other.shape)}"
                )
        elif not isinstance(other, Real):
            return NotImplemented  # type: ignore[no-any-return]
        return self.replace(operator(self.features, other))

    __add__ = __radd__ = _operator(torch.add)
    __sub__ = _operator(torch.sub)
    __rsub__ = _operator(torch.rsub)
    __mul__ = __rmul__ = _operator(torch.mul)
    __truediv__ = _operator(torch.div)
    __rtruediv__ = _operator(lambda own, left: left / own)
    __pow__ = _operator(torch.pow)


#: Next to a sparse tensor in ``+ - * / **``.
Operand: TypeAlias = SparseTensor | Tensor | float


def check_same_sites(*tensors: SparseTensor) -> None:
    """Refuse tensors that do not live on one and the same geometry object."""
    if not tensors:
        raise ValueError("needs at least one sparse tensor")
    for position, tensor in enumerate(tensors):
        if not isinstance(tensor, SparseTensor):
            raise TypeError(f"argument {position} is a {type(tensor).__name__}, no SparseTensor")
        if tensor.geometry is not tensors[0].geometry:
            raise ValueError(
                f"tensor {position} lives on another geometry than tensor 0 ({tensor.geometry.rows}"
                f" and {tensors[0].geometry.rows} sites): pcnn.from_coordinates adds over the "
                "sites of all, out=other.geometry tells a layer its sites"
            )


def require_sparse(x: object, layer: object) -> None:
    """Refuse an input of a layer that is no sparse tensor."""
    if not isinstance(x, SparseTensor):
        raise TypeError(
            f"{type(layer).__name__} takes a pcnn.SparseTensor, got {type(x).__name__}; "
            "pcnn.voxelize and pcnn.native_points make one of points and features"
        )
