"""The order of tests for several workers: long ones first, those of a file in one worker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import TypeVar

Item = TypeVar("Item")


def dealt(
    items: Sequence[Item],
    workers: int,
    is_long: Callable[[Item], bool],
    file: Callable[[Item], str],
) -> list[Item]:
    """Items in an order whose equal shares, one after another, begin with the long ones.

    pytest-xdist's ``worksteal`` gives every worker one stretch of the list, and those that are done
    the ends of others'. A test that takes minutes must not be met at the end of a stretch; and what
    tests of one file compile and check is kept in their process.

    Args:
        items: in the order of their files.
        workers: processes.
        is_long: whether an item takes long.
        file: of an item.
    """
    files = [list(group) for _, group in groupby(filter(is_long, items), key=file)]
    rest = iter([item for item in items if not is_long(item)])
    found: list[Item] = []
    for number in range(workers):
        size = (len(items) - len(found)) // (workers - number)
        share = [item for part in files[number::workers] for item in part]
        while len(share) < size and (one := next(rest, None)) is not None:
            share.append(one)
        found += share
    return [*found, *rest]
