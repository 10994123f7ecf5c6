"""Work of threads ahead of the one that takes the results."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

_END = object()


def ahead(items: Iterable[T], depth: int = 2) -> Iterator[T]:
    """Yield items in order while a thread makes the next ones."""
    source = iter(items)
    with ThreadPoolExecutor(1) as pool:
        pending = deque(pool.submit(next, source, _END) for _ in range(depth))
        while True:
            found = pending.popleft().result()
            if found is _END:
                return
            pending.append(pool.submit(next, source, _END))
            yield found  # type: ignore[misc]  # an item: it is not the end


def in_order(function: Callable[[T], R], items: Iterable[T], threads: int) -> Iterator[R]:
    """Yield the results of a function in the order of the items, which threads work on."""
    pending: deque[Future[R]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        for item in items:
            pending.append(pool.submit(function, item))
            if len(pending) > threads:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
