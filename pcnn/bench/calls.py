"""What is measured: a call for every repeat, made before the clock starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

#: No arguments; what it returns is kept until the clock has stopped.
Call = Callable[[], object]

#: The call of a repeat, from the number of the repeat. What it prepares is not measured.
Calls = Callable[[int], Call]


def same(run: Call) -> Calls:
    """Return one call for all repeats."""
    return lambda _: run


def rotate(runs: Sequence[Call]) -> Calls:
    """Take turns among calls, one for every set of inputs: no repeat finds its inputs in a cache.

    Raises:
        ValueError: no call.
    """
    if not runs:
        raise ValueError("rotate needs at least one call")
    return lambda index: runs[index % len(runs)]
