from dataclasses import replace

import pytest
import torch

from pcnn.geometry import Kernel, VoxelGrid, grid_of_cells
from pcnn.maps.double_traversed import DoubleTraversed
from tests.clouds import dense_grid, surface_grid
from tests.maps.test_builders import check

BLOCKS = [(4, 8), (8, 3), (16, 64), (256, 512)]


@pytest.mark.usefixtures("emulated")
class TestOnCpu:
    @pytest.mark.parametrize("blocks", BLOCKS, ids=str)
    def test_blocks_of_any_size(self, blocks: tuple[int, int]) -> None:
        builder = DoubleTraversed("double_traversed", *blocks, symmetry=blocks[0] in (8, 256))
        for n in (2, 120):
            grid = surface_grid(n, batch_size=2)
            for kernel in (Kernel.of(3), Kernel.of((3, 1, 5), dilation=(2, 1, 1)), Kernel.of(1)):
                check(builder, grid, grid, kernel)
            check(builder, grid, grid.strided(Kernel.of(3, 2)), Kernel.of(3, 2))

    @pytest.mark.parametrize("symmetry", [False, True])
    @pytest.mark.parametrize("size", [4, (3, 4, 5), 7])
    def test_more_slots_than_a_mask_word_holds(self, size: int, symmetry: bool) -> None:
        grid = surface_grid(40, batch_size=2)
        builder = DoubleTraversed(source_block=8, query_block=16, symmetry=symmetry)
        check(builder, grid, grid, Kernel.of(size))

    @pytest.mark.parametrize("blocks", [(4, 4), (2, 1), (32, 512)], ids=str)
    @pytest.mark.parametrize("few", ["source", "target"])
    def test_skewed_sides(self, blocks: tuple[int, int], few: str) -> None:
        # all queries but few fall to one source block, or one query to many source blocks
        dense = dense_grid(6)
        sparse = grid_of_cells(torch.tensor([[2, 3, 1], [2, 3, 4], [9, 9, 9]]), None, 1)
        builder = DoubleTraversed("double_traversed", *blocks)
        source, target = (sparse, dense) if few == "source" else (dense, sparse)
        check(builder, source, target, Kernel.of((2, 3, 3)))

    @pytest.mark.parametrize("symmetry", [False, True])
    def test_dense_and_empty_regions(self, symmetry: bool) -> None:
        cells = torch.cat(
            [dense_grid(5).coords[:, 1:], torch.arange(-40, 0, 4)[:, None].expand(-1, 3)]
        )
        grid = grid_of_cells(cells.long(), None, 1)
        for blocks in [(4, 2), (8, 16)]:
            builder = DoubleTraversed("double_traversed", *blocks, symmetry=symmetry)
            check(builder, grid, grid, Kernel.of(3))

    @pytest.mark.parametrize("before", [True, False])
    def test_queries_beyond_every_key_find_nothing(self, before: bool) -> None:
        near, far = surface_grid(40), surface_grid(40)
        moved = far.keys + far.key_format.delta((1000, 0, 0)) * (-1 if before else 1)
        target = replace(far, keys=moved, bound=far.bound + 1000)
        builder = DoubleTraversed(source_block=8, query_block=8)
        (table,) = builder.build(near, target, Kernel.of(3)).layout("table")
        assert (table == -1).all()


@pytest.mark.parametrize(
    "given", [{"source_block": 24}, {"source_block": 8192}, {"query_block": 0}]
)
def test_block_sizes_are_checked(given: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(given))):
        DoubleTraversed(**given)  # type: ignore[arg-type]


def test_more_query_blocks_than_a_grid_holds() -> None:
    grid = VoxelGrid(torch.empty(1 << 28, dtype=torch.int64, device="meta"), 1, 0)
    with pytest.raises(ValueError, match="raise source_block and query_block"):
        DoubleTraversed(source_block=16, query_block=16).build(grid, grid, Kernel.of(7))


def test_needs_a_cuda_device() -> None:
    grid = surface_grid(10)
    with pytest.raises(ValueError, match="CUDA"):
        DoubleTraversed().build(grid, grid, Kernel.of(3))
