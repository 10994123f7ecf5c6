"""Work that one of many processes does, and whose result all of them get."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

from torch import distributed

Result = TypeVar("Result")

#: The others wait this long for rank 0.
PATIENCE = timedelta(hours=6)


def on_rank_zero(work: Callable[[], Result]) -> Result:
    """Do work on rank 0 and give its result to every rank; without ranks, just do it.

    Every rank calls this, and nothing else in between. They wait in a group of their own, on the
    CPU, because collectives of devices time out after minutes.
    """
    if not (distributed.is_available() and distributed.is_initialized()):
        return work()
    group = distributed.new_group(backend="gloo", timeout=PATIENCE)
    answer: list[Any] = [None, None]
    failed: Exception | None = None
    try:
        if distributed.get_rank() == 0:
            try:
                answer = [work(), None]
            except Exception as error:  # the other ranks are waiting: they get the error first
                failed = error
                answer = [None, f"{type(error).__name__}: {error}"]
        distributed.broadcast_object_list(answer, src=0, group=group)
    finally:
        distributed.destroy_process_group(group)
    if failed is not None:
        raise failed
    result, trouble = answer
    if trouble is not None:
        raise RuntimeError(f"rank 0 failed: {trouble}")
    return result  # type: ignore[no-any-return]
