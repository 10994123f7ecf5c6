import torch

from pcnn.dataflows.triplets import (
    LAYOUTS_OF,
    Sort,
    Triplets,
    triplets_of,
)
from pcnn.geometry import KernelMap
from pcnn.ops.conformance import random_map


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


def test_settings_are_checked_and_told_apart() -> None:
    assert Triplets().name == "triplets_k"
    assert Triplets("i", 64, 16, 32).name == "triplets_i_64x16x32"
