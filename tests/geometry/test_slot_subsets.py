import pytest
import torch

from pcnn.geometry import Kernel, KernelMap
from pcnn.geometry.slot_subsets import split_slots, threshold_of
from pcnn.maps import SortedSearch
from tests.clouds import surface_grid

Triplets = list[tuple[int, int, int]]
KERNELS = [Kernel.of(3), Kernel.of(3, 2), Kernel.of((3, 1, 2)), Kernel.of(1), Kernel.of(5)]


def make(kernel: Kernel, transposed: bool, n: int = 150) -> KernelMap:
    grid = surface_grid(n, batch_size=2)
    found = grid.map_to(grid.strided(kernel), kernel, SortedSearch())
    return found.transpose() if transposed else found


def all_triplets(kernel_map: KernelMap) -> Triplets:
    columns = kernel_map.slot_index, kernel_map.out_index, kernel_map.in_index
    return sorted(zip(*(column.tolist() for column in columns), strict=True))


def listed(
    slots: list[int], inputs: torch.Tensor, outputs: torch.Tensor, counts: torch.Tensor
) -> Triplets:
    every = torch.tensor(slots).repeat_interleave(counts)
    return list(zip(every.tolist(), outputs.tolist(), inputs.tolist(), strict=True))


def with_mirrored(triplets: Triplets, volume: int) -> Triplets:
    return triplets + [(volume - 1 - k, j, i) for k, i, j in triplets]


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize("transposed", [False, True])
def test_half_of_the_pairs_say_it_all(kernel: Kernel, transposed: bool) -> None:
    kernel_map = make(kernel, transposed)
    in_index, out_index, counts = kernel_map.layout("half_pairs")
    found = listed(list(range(len(counts))), in_index, out_index, counts)
    if kernel.is_symmetric:
        assert len(counts) == kernel.volume // 2
        found = with_mirrored(found, kernel.volume)
        found += [(kernel.volume // 2, row, row) for row in range(kernel_map.n_out)]
    assert sorted(found) == all_triplets(kernel_map)


def test_several_inputs_in_a_slot_are_all_listed() -> None:
    index = torch.tensor([0, 1, 0, 1], dtype=torch.int32)
    offsets = torch.tensor([0, 0, 4, 4])
    kernel_map = KernelMap.from_pairs(index, index.sort().values, offsets, 2, 2, False, False, True)
    assert len(kernel_map.layout("half_pairs")[2]) == 3


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("setting", ["1", "2", "9", "usual"])
def test_near_slots_are_a_table_and_far_ones_pairs(
    kernel: Kernel, transposed: bool, setting: str
) -> None:
    kernel_map = make(kernel, transposed)
    table, dense, in_index, out_index, counts, sparse = kernel_map.layout(f"hybrid:{setting}")
    threshold = threshold_of(setting, kernel.norms)
    assert all((kernel.norms[slot] < threshold) for slot in dense.tolist())
    assert all((kernel.norms[slot] >= threshold) for slot in sparse.tolist())
    assert table.shape == (kernel_map.n_out, len(dense))
    found = listed(sparse.tolist(), in_index, out_index, counts)
    if kernel.is_symmetric:
        assert len(dense) + 2 * len(sparse) == kernel.volume
        found = with_mirrored(found, kernel.volume)
    else:
        assert len(dense) + len(sparse) == kernel.volume
    rows, columns = (table >= 0).nonzero(as_tuple=True)
    slots = dense.long()[columns].tolist()
    found += list(zip(slots, rows.tolist(), table[rows, columns].tolist(), strict=True))
    assert sorted(found) == all_triplets(kernel_map)


def test_a_threshold_splits_slots_by_norm() -> None:
    norms = Kernel.of(3).norms
    assert norms == tuple(abs(x) + abs(y) + abs(z) for x, y, z in Kernel.of(3).offsets)
    assert split_slots(norms, 0) == ((), tuple(range(27)))
    assert split_slots(norms, 1)[0] == (13,)
    assert len(split_slots(norms, 2)[0]) == 7
    assert split_slots(norms, 4) == (tuple(range(27)), ())
    wide, apart = Kernel.of(5), Kernel.of(3, dilation=3)
    assert [threshold_of("usual", one.norms) for one in (Kernel.of(3), wide, apart)] == [4, 1, 10]
    assert threshold_of("5", wide.norms) == 5


def test_what_cannot_be_is_said() -> None:
    grid = surface_grid(20)
    alone = SortedSearch().build(grid, grid, Kernel.of(3))
    with pytest.raises(ValueError, match="does not know the offsets of its slots"):
        alone.layout("hybrid:2")
    for name in ("hybrid", "hybrid:", "hybrid:near", "hybrid:-1", "half"):
        with pytest.raises(ValueError, match=r"unknown layout .*hybrid:<threshold>"):
            alone.layout(name)
