import math

import pytest

from pcnn.dataflows.grouping import (
    Adaptive,
    Fixed,
    Grouping,
    Separate,
    Sorted,
    Symmetric,
)

SUBMANIFOLD = [10, 40, 9, 100, 9, 40, 10]  # the centre is slot 3
STRIDED = [50, 48, 0, 52, 20, 21]


def described(grouping: Grouping, sizes: list[int], skip: int = -1) -> list[tuple[list[int], int]]:
    return [(list(group.slots), group.rows) for group in grouping.groups(sizes, skip)]


@pytest.mark.parametrize(
    ("grouping", "sizes", "skip", "expected", "padding"),
    [
        (Separate(), STRIDED, -1, [([0], 50), ([1], 48), ([3], 52), ([4], 20), ([5], 21)], 0),
        (Separate(), [3, 5, 3], 1, [([0], 3), ([2], 3)], 0),
        (Symmetric(), SUBMANIFOLD, 3, [([0, 6], 10), ([1, 5], 40), ([2, 4], 9)], 0),
        (Symmetric(), [3, 5, 3], -1, [([0, 2], 3), ([1], 5)], 0),
        (Symmetric(), [3, 5, 4], -1, [([0], 3), ([1], 5), ([2], 4)], 0),
        # head: the first pair of three (4 of 13); then the other pairs; then the centre
        (Fixed(), SUBMANIFOLD, 3, [([0, 6], 10), ([1, 2, 4, 5], 40)], 62),
        (Fixed(), SUBMANIFOLD, -1, [([0, 6], 10), ([1, 2, 4, 5], 40), ([3], 100)], 62),
        (Fixed(), STRIDED, -1, [([0, 1, 3, 4, 5], 52)], 2 + 4 + 32 + 31),
        # 10 10 40 40: 100 of 160 rows, 37.5 % redundant
        (Adaptive(0.3), SUBMANIFOLD, 3, [([0, 6], 10), ([1, 5], 40), ([2, 4], 9)], 0),
        (Adaptive(0.375), SUBMANIFOLD, 3, [([0, 1, 5, 6], 40), ([2, 4], 9)], 60),
        (Adaptive(0.375), SUBMANIFOLD, -1, [([0, 1, 5, 6], 40), ([2, 4], 9), ([3], 100)], 60),
        (Adaptive(1), SUBMANIFOLD, 3, [([0, 1, 2, 4, 5, 6], 40)], 122),
        # empty slots neither break a group nor join one
        (Adaptive(0.05), STRIDED, -1, [([0, 1, 3], 52), ([4, 5], 21)], 7),
        (Adaptive(0.05, 52), STRIDED, -1, [([0], 50), ([1], 48), ([3], 52), ([4, 5], 21)], 1),
        (Adaptive(1, 0), [3, 5, 3], -1, [([0], 3), ([2], 3), ([1], 5)], 0),
        (Adaptive(0), [3, 5, 3], -1, [([0, 2], 3), ([1], 5)], 0),
        # 9 9 10 10 sort together; 40 would bring 2 rows of padding for 39.5 each
        (Sorted(0.1), SUBMANIFOLD, 3, [([0, 2, 4, 6], 10), ([1, 5], 40)], 2),
        (Sorted(0), SUBMANIFOLD, 3, [([2, 4], 9), ([0, 6], 10), ([1, 5], 40)], 0),
        (Sorted(-1), [3, 5, 3], -1, [([0], 3), ([2], 3), ([1], 5)], 0),
        (Sorted(math.inf), SUBMANIFOLD, -1, [([0, 1, 2, 3, 4, 5, 6], 100)], 482),
        (Sorted(0.1, 50), STRIDED, -1, [([4, 5], 21), ([0], 50), ([1], 48), ([3], 52)], 1),
    ],
)
def test_groups_are_those_of_the_papers(
    grouping: Grouping,
    sizes: list[int],
    skip: int,
    expected: list[tuple[list[int], int]],
    padding: int,
) -> None:
    got = described(grouping, sizes, skip)
    assert sorted(got) == sorted(expected)
    groups = grouping.groups(sizes, skip)
    padded = sum(len(group.slots) * group.rows for group in groups)
    assert padded - sum(sizes[k] for group in groups for k in group.slots) == padding


ALL = [Separate(), Symmetric(), Fixed(), Adaptive(0.2), Adaptive(0.4, 90), Sorted(0.08)]


@pytest.mark.parametrize("grouping", ALL, ids=lambda g: g.name)
@pytest.mark.parametrize("sizes", [[], [0], [7], [0] * 27, [5] * 8, SUBMANIFOLD, STRIDED])
@pytest.mark.parametrize("skip", [-1, 3])
def test_every_slot_with_triplets_is_in_one_group(
    grouping: Grouping, sizes: list[int], skip: int
) -> None:
    groups = grouping.groups(sizes, skip)
    slots = sorted(k for group in groups for k in group.slots)
    assert slots == [k for k, size in enumerate(sizes) if size and k != skip]
    for group in groups:
        assert list(group.slots) == sorted(group.slots)
        assert group.rows == max(sizes[k] for k in group.slots)


def test_settings_have_names_and_bounds() -> None:
    names = [grouping.name for grouping in ALL]
    assert len(set(names)) == len(names)
    assert all(name.isidentifier() for name in names)
    assert Sorted(-1).name == "sorted_m1_inf"
    with pytest.raises(ValueError, match=r"epsilon must be in 0\.\.1, got 1\.5"):
        Adaptive(1.5)
    with pytest.raises(ValueError, match="at least 0 rows"):
        Sorted(0.1, -3)
