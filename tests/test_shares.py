from __future__ import annotations

from tests.shares import dealt

FILES = {"a": 30, "b": 3, "c": 2, "d": 40, "e": 1}
ITEMS = [(file, number) for file, count in FILES.items() for number in range(count)]


def order(workers: int, long: str) -> list[tuple[str, int]]:
    return dealt(ITEMS, workers, lambda item: item[0] in long, lambda item: item[0])


def test_shares_begin_with_the_long_tests_of_a_file() -> None:
    found = order(3, "bce")
    assert sorted(found) == ITEMS
    size = len(ITEMS) // 3
    assert found[:3] == [("b", number) for number in range(3)]
    assert found[size : size + 2] == [("c", 0), ("c", 1)]
    assert found[2 * size] == ("e", 0)
    rest = [item for item in found if item[0] in "ad"]
    assert rest == [item for item in ITEMS if item[0] in "ad"], "the others keep their order"


def test_files_beyond_the_workers_follow_the_first_ones() -> None:
    assert order(1, "bce")[:6] == [*(("b", n) for n in range(3)), ("c", 0), ("c", 1), ("e", 0)]
    assert sorted(order(2, "abcde")) == ITEMS
    assert order(4, "") == ITEMS
