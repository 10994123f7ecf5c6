"""Launches of Triton kernels written down, and their variants compiled ahead, on all cores."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextvars import ContextVar
from functools import partial
from typing import Any, NamedTuple

import torch

from pcnn.cores import available_cores

#: Triton gives all its launchers the name of one module. Python fills that module again for every
#: launcher, so of two threads that load at once one could take the other's function.
_LOADING = threading.Lock()


class Launch(NamedTuple):
    """All that a compiled variant of a Triton kernel depends on."""

    kernel: Any  # made by triton.jit
    arguments: tuple[Any, ...]  # the dtype of every tensor (None where there is none)
    options: tuple[tuple[str, int], ...]  # names and values of Triton's own options

    def compile(self) -> int:
        """Compile and load it on torch's current device, or read it from Triton's cache."""
        compiled = self.kernel.warmup(*self.arguments, grid=(1,), **dict(self.options))
        with _LOADING:
            assert compiled.run  # builds the function that launches it, and loads the code
        return len(compiled.kernel)


Record = dict[Launch, None]

#: Where launches of this thread are written down; ``None``: they are made.
RECORD: ContextVar[Record | None] = ContextVar("recorded launches", default=None)


@contextlib.contextmanager
def recorded() -> Iterator[Record]:
    """Write down the launches of Triton kernels by this thread in place of making them."""
    record: Record = {}
    token = RECORD.set(record)
    try:
        yield record
    finally:
        RECORD.reset(token)


def compile_all(launches: Collection[Launch], device: torch.device) -> Iterator[int]:
    """Compile variants side by side, on all cores; Triton's passes hold no lock of Python."""
    if not launches:
        return
    from triton.runtime.cache import triton_key

    triton_key()  # a digest of the compiler, which every thread would compute by itself
    workers = min(available_cores(), len(launches))
    if device == torch.device("cuda"):  # other threads have another current one
        device = torch.device("cuda", torch.cuda.current_device())
    pool = ThreadPoolExecutor(workers, "compile", partial(torch.cuda.set_device, device))
    try:
        for done in as_completed([pool.submit(launch.compile) for launch in launches]):
            yield done.result()
    finally:
        pool.shutdown(cancel_futures=True)
