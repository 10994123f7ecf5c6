"""Which slots are multiplied together, and where their rows lie; values are in test_products."""

import math

import pytest
import torch

from pcnn.dataflows.gather_scatter import padded_buffer, placement
from pcnn.dataflows.grouping import SEPARATE, SYMMETRIC, Adaptive, Fixed, Grouping, Sorted

SUBMANIFOLD = [10, 40, 9, 100, 9, 40, 10]  # the centre is slot 3
STRIDED = [50, 48, 0, 52, 20, 21]


@pytest.mark.parametrize(
    ("grouping", "sizes", "skip", "expected"),
    [
        (SEPARATE, STRIDED, -1, [([0], 50), ([1], 48), ([3], 52), ([4], 20), ([5], 21)]),
        (SYMMETRIC, SUBMANIFOLD, 3, [([0, 6], 10), ([1, 5], 40), ([2, 4], 9)]),
        (SYMMETRIC, [3, 5, 3], -1, [([0, 2], 3), ([1], 5)]),
        # head: the first pair of three (4 of 13); then the other pairs; then the centre
        (Fixed(), SUBMANIFOLD, 3, [([0, 6], 10), ([1, 2, 4, 5], 40)]),
        # 10 10 40 40: 100 of 160 rows, 37.5 % redundant
        (Adaptive(0.3), SUBMANIFOLD, 3, [([0, 6], 10), ([1, 5], 40), ([2, 4], 9)]),
        (Adaptive(0.375), SUBMANIFOLD, 3, [([0, 1, 5, 6], 40), ([2, 4], 9)]),
        (Adaptive(0.375), SUBMANIFOLD, -1, [([0, 1, 5, 6], 40), ([2, 4], 9), ([3], 100)]),
        # empty slots neither break a group nor join one
        (Adaptive(0.05), STRIDED, -1, [([0, 1, 3], 52), ([4, 5], 21)]),
        (Adaptive(0.05, 52), STRIDED, -1, [([0], 50), ([1], 48), ([3], 52), ([4, 5], 21)]),
        (Adaptive(1, 0), [3, 5, 3], -1, [([0], 3), ([2], 3), ([1], 5)]),
        # 9 9 10 10 sort together; 40 would bring 2 rows of padding for 39.5 each
        (Sorted(0.1), SUBMANIFOLD, 3, [([0, 2, 4, 6], 10), ([1, 5], 40)]),
        (Sorted(0), SUBMANIFOLD, 3, [([2, 4], 9), ([0, 6], 10), ([1, 5], 40)]),
        (Sorted(-1), [3, 5, 3], -1, [([0], 3), ([2], 3), ([1], 5)]),
        (Sorted(math.inf), SUBMANIFOLD, -1, [([0, 1, 2, 3, 4, 5, 6], 100)]),
        (Sorted(0.1, 50), STRIDED, -1, [([4, 5], 21), ([0], 50), ([1], 48), ([3], 52)]),
        (Sorted(0.08), [0] * 27, -1, []),
    ],
)
def test_groups_are_those_of_the_papers(
    grouping: Grouping, sizes: list[int], skip: int, expected: list[tuple[list[int], int]]
) -> None:
    groups = grouping.groups(sizes, skip)
    assert sorted((list(group.slots), group.rows) for group in groups) == sorted(expected)


#: Five slots of 2, 0, 5, 3 and 2 triplets.
OFFSETS = (0, 2, 2, 7, 10, 12)


def test_slots_lie_where_the_shifts_say_and_the_identity_behind_them() -> None:
    place = padded_buffer(OFFSETS, Sorted(0.5), -1, False)
    blocks = [(block.slots, block.start, block.end) for block in place.blocks]
    assert blocks == [((0, 3, 4), 0, 9), ((2,), 9, 14)]
    assert [OFFSETS[k] + place.shifts[k] for k in (0, 3, 4, 2)] == [0, 3, 6, 9]
    placed = placement(torch.tensor(OFFSETS), Sorted(0.5), -1, False, torch.device("cpu"))
    assert placed.padding.tolist() == [2, 8]
    assert [own.shape[0] for own in placed.matrices(torch.ones(5, 2, 3))] == [3, 1]
    assert place.gathered == 14
    place = padded_buffer(OFFSETS, Fixed(), 2, True)  # of a mirrored map matrices ascend
    block, identity = place.products
    assert (block.slots, block.weights) == ((4, 3, 0), (0, 1, 4))
    assert (identity.slots, identity.weights, identity.rows) == ((2,), (2,), 5)
    assert place.gathered == identity.start == OFFSETS[2] + place.shifts[2] == 9
    assert identity.end == 14
