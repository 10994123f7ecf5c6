"""All geometries and kernel maps of a network, built at the start (Spira's network-wide indexing).

A network asks for its levels and maps while it runs, and they stay cached on the geometry. So what
it will ask for is read off a dry run (`pcnn.ops.recipe`), and replayed on every batch: on a device
in a few launches with one host sync (`pcnn.ops.device_plan`), elsewhere map by map.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from pcnn.geometry import KernelMap, VoxelGrid, grid_of_cells
from pcnn.maps import Windowed
from pcnn.maps.native import has_kernels
from pcnn.maps.tiles import tiles_of_masks
from pcnn.ops.device_plan import plan_cells, plan_grid
from pcnn.ops.engine import Engine, resolve
from pcnn.ops.recipe import Recipe, trace

#: Layouts that list triplets, so that their number must be known on the host.
LISTED = ("pairs", "blocks", "rows_csr")


class Planner:
    """Builds every geometry and kernel map a model will need, for one batch after another.

    Args:
        model: any module that takes a `SparseTensor`; user models need no preparation. Sites that
            a model passes to a layer by hand, other than levels of its own input, are not planned.
        layouts: names of the layouts to build; ``None`` means those the engine's dataflow needs.

    Raises:
        ValueError: the number of input channels cannot be read off the model.
    """

    def __init__(self, model: nn.Module, layouts: Sequence[str] | None = None) -> None:
        engines = (getattr(module, "engine", None) for module in model.modules())
        self.engine = next((e for e in engines if isinstance(e, Engine)), resolve(None))
        self.layouts = tuple(self.engine.dataflow.needs if layouts is None else layouts)
        self.recipe: Recipe = trace(model)

    def __call__(self, geometry: VoxelGrid, backward: bool | None = None) -> VoxelGrid:
        """Derive all levels and build all maps of a geometry.

        Args:
            geometry: the sites of a batch.
            backward: whether to build what backward reads too; ``None``: if gradients are enabled.

        Returns:
            The geometry itself.
        """
        both = torch.is_grad_enabled() if backward is None else backward
        if self.is_batched(geometry.device):
            plan_grid(self.recipe, geometry, self._lists(both))
        self._finish(geometry, both)
        return geometry

    def voxelize(
        self, cells: Tensor, batch_size: int = 1, *, sites: str = "floor", backward: bool = False
    ) -> VoxelGrid:
        """Geometry of integer cells in any order, planned in the same go.

        Args:
            cells: ``[P, 4]`` int32 (batch, x, y, z); duplicates are merged.
            batch_size: number of clouds.
            sites: output sites of strided convolutions, ``floor`` or ``reached``.
            backward: as in a call.

        Returns:
            The geometry; ``inverse`` ``[P]`` holds the row of every cell.

        Raises:
            ValueError: wrong shape or dtype, or cells beyond the packed keys.
        """
        if cells.ndim != 2 or cells.shape[1] != 4 or cells.dtype != torch.int32:
            raise ValueError(
                f"cells must be [P, 4] int32 (batch, x, y, z), got {cells.dtype} "
                f"{tuple(cells.shape)}"
            )
        if self.is_batched(cells.device):
            grid = plan_cells(self.recipe, cells, batch_size, self._lists(backward), sites)
        else:
            grid = grid_of_cells(cells[:, 1:], cells[:, 0], batch_size, sites)
        self._finish(grid, backward)
        return grid

    def is_batched(self, device: torch.device) -> bool:
        """Whether a device's kernels build all maps at once."""
        return isinstance(self.engine.builder_on(device), Windowed) and has_kernels(device)

    def _lists(self, backward: bool) -> bool:
        pooled = any("pairs" in planned.uses for planned in self.recipe.maps)
        return backward or pooled or any(name in LISTED for name in self.layouts)

    def _finish(self, geometry: VoxelGrid, backward: bool) -> None:
        """Levels and maps that are not there yet, then the layouts of all maps."""
        grids = [geometry]
        for parent, direction, kernel in self.recipe.levels:
            derive = grids[parent].strided if direction == "down" else grids[parent].generated
            grids.append(derive(kernel))
        views: list[KernelMap] = []
        for planned in self.recipe.maps:
            source, target = grids[planned.source], grids[planned.target]
            built = source.map_to(target, planned.kernel, self.engine.builder.build)
            if "pairs" in planned.uses:
                built.layout("pairs")
            if planned.uses & {"product", "transposed"}:
                views += [built] if backward or "product" in planned.uses else []
                views += [built.transpose()] if backward or "transposed" in planned.uses else []
        if "tiles" in self.layouts and self.is_batched(geometry.device):
            _tile(views)
        for view in views:
            for name in self.layouts:
                view.layout(name)


def _tile(views: Iterable[KernelMap]) -> None:
    """Row orders of many maps from one sort; a symmetric map's transpose needs none of its own."""
    wanted = [
        view
        for view in views
        if not view.has("tiles") and not (view.symmetric and view.flipped)
    ]
    if wanted:
        masks = [(view.layout("masks")[0], view.volume) for view in wanted]
        for view, layout in zip(wanted, tiles_of_masks(masks), strict=True):
            view.edges.layouts["tiles", view.flipped] = layout


def plan(model: nn.Module, geometry: VoxelGrid) -> VoxelGrid:
    """Build every geometry and kernel map that ``model`` needs on ``geometry``.

    For one batch; in a loop keep a `Planner`, which traces the model once.
    """
    return Planner(model)(geometry)
