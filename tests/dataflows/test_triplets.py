import pytest
import torch

from pcnn.dataflows.triplets import (
    LAYOUTS_OF,
    Accesses,
    Sort,
    Triplets,
    accesses,
    triplets_of,
)
from pcnn.geometry import KernelMap
from pcnn.ops.conformance_cases import random_map


def ordered(kernel_map: KernelMap, sort: Sort) -> tuple[torch.Tensor, ...]:
    return triplets_of(sort, kernel_map.layouts(LAYOUTS_OF[sort]))


def test_every_order_lists_the_same_triplets_sorted_by_its_number() -> None:
    kernel_map = random_map(30, 40, 27, 300)
    listed = [kernel_map.out_index, kernel_map.in_index, kernel_map.slot_index]
    expected = sorted(zip(*(column.tolist() for column in listed), strict=True))
    for sort, column in (("i", 0), ("j", 1), ("k", 2)):
        numbers = ordered(kernel_map, sort)  # type: ignore[arg-type]
        assert (numbers[column].diff() >= 0).all()
        assert sorted(zip(*(n.tolist() for n in numbers), strict=True)) == expected


def test_accesses_are_counted_by_hand() -> None:
    i, j, k = (torch.tensor(row) for row in ([0, 0, 1, 1, 1], [3, 4, 4, 5, 5], [0, 0, 0, 0, 2]))
    assert accesses(i, j, k, 128) == Accesses(weights=2, inputs=3, outputs=2)
    assert accesses(i, j, k, 2) == Accesses(weights=3, inputs=5, outputs=3)
    assert accesses(i, j, k, 1) == Accesses(5, 5, 5)
    assert accesses(*(torch.empty(0, dtype=torch.int64),) * 3, 128) == Accesses(0, 0, 0)
    assert Accesses(2, 3, 4).elements(10, 100) == 2 * 1000 + 3 * 10 + 4 * 100


def test_each_order_saves_what_it_is_sorted_by() -> None:
    kernel_map, length = random_map(400, 400, 27, 6000), 128
    chunks = -(-6000 // length)
    found = {sort: accesses(*ordered(kernel_map, sort), length) for sort in LAYOUTS_OF}
    for sort, name, runs in (("k", "weights", 27), ("i", "outputs", 400), ("j", "inputs", 400)):
        fewest = getattr(found[sort], name)  # type: ignore[index]
        assert fewest <= chunks + runs
        assert fewest == min(getattr(one, name) for one in found.values())
    # Eq. 3: with as many channels as layers have, order by k reads and adds least
    total = {sort: one.elements(64, 64) for sort, one in found.items()}
    assert total["k"] < total["i"] / 10
    assert total["k"] < total["j"] / 10


def test_settings_are_checked_and_told_apart() -> None:
    assert Triplets().name == "triplets_k"
    assert Triplets("i", 64, 16, 32).name == "triplets_i_64x16x32"
    with pytest.raises(ValueError, match="sort must be one of k, i, j"):
        Triplets("x")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="length must be at least 1"):
        Triplets(length=0)
    with pytest.raises(ValueError, match="block_in must be a power of two"):
        Triplets(block_in=24)
