"""Launching Triton kernels at a few microseconds of host time.

Triton's own launch finds out at every call which variant its arguments want. Here the caller names
the variant, so that a repeated call is one dictionary look-up and the launch itself.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor

from pcnn.kernels.recorded import RECORD, Launch

#: Sizes beyond it are 64-bit arguments, so another variant.
_INT32 = 1 << 31
_ALIGNMENT = 16

#: Arguments that vary from call to call; one that is a float once is a float in every call.
Sizes = tuple[int | float, ...]

#: Versions of Triton whose inner launch function is known.
_KNOWN = ("3.6.0",)


def started(compiled: Any) -> tuple[Any, tuple[Any, ...]]:
    """The function that starts a compiled kernel, and its arguments between stream and tensors."""
    run, metadata = compiled.run, compiled.packed_metadata
    hooks = None, None, None  # metadata of a launch, what is called before and after it
    scratch = run.global_scratch_size or run.profile_scratch_size if _is_known(run) else 1
    if scratch:
        return run, (compiled.function, metadata, *hooks)
    modes = run.launch_cooperative_grid, run.launch_pdl
    return run.launch, (compiled.function, *modes, None, None, metadata, *hooks)


def _is_known(run: Any) -> bool:
    return triton.__version__ in _KNOWN and type(run).__name__ == "CudaLauncher"


class TritonLauncher:
    """A Triton kernel whose arguments are tensors, then sizes, then compile-time constants."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        self._variants: dict[tuple[Any, ...], Variant] = {}

    def __call__(
        self,
        grid: tuple[int, int],
        tensors: tuple[Tensor | None, ...],
        sizes: Sizes,
        constants: tuple[Any, ...],
        num_warps: int,
        num_stages: int = 3,
    ) -> None:
        """Run the kernel; see `Variant.__call__` and `variant`."""
        self.variant(constants, num_warps, num_stages)(grid, tensors, sizes)

    def variant(self, constants: tuple[Any, ...], num_warps: int, num_stages: int = 3) -> Variant:
        """The kernel with its constants; the same object for the same ones."""
        key = constants, num_warps, num_stages
        found = self._variants.get(key)
        if found is None:
            found = self._variants.setdefault(key, Variant(self.kernel, *key))
        return found


class Variant:
    """A Triton kernel with its constants; callers that launch it often keep it."""

    __slots__ = ("_anywhere", "_compiled", "_constants", "_interpreted", "_kernel", "_options")

    def __init__(
        self, kernel: Any, constants: tuple[Any, ...], num_warps: int, num_stages: int
    ) -> None:
        self._kernel, self._constants = kernel, constants
        self._options = {"num_warps": num_warps, "num_stages": num_stages}
        self._compiled: dict[tuple[Any, ...], Any] = {}
        self._interpreted = not isinstance(kernel, triton.JITFunction)
        # tensors that one variant takes from any address
        parameters = () if self._interpreted else kernel.params
        free = (one.num for one in parameters if one.do_not_specialize_on_alignment)
        self._anywhere = frozenset(free)

    def __call__(
        self, grid: tuple[int, int], tensors: tuple[Tensor | None, ...], sizes: Sizes
    ) -> None:
        """Run the kernel on torch's current stream of the first tensor's device."""
        if 0 in grid:
            return
        first = tensors[0]
        assert first is not None
        record = RECORD.get()
        if record is not None:
            types = [None if tensor is None else tensor.dtype for tensor in tensors]
            large = [size if not -_INT32 <= size < _INT32 else type(size)() for size in sizes]
            arguments = *types, *large, *self._constants
            record[Launch(self._kernel, arguments, tuple(self._options.items()))] = None
            return
        if self._interpreted:
            self._launch(grid, tensors, sizes)
            return
        index = first.get_device()
        if index != torch._C._cuda_getDevice():
            with torch.cuda.device(index):
                self(grid, tensors, sizes)
            return
        # plain loops and no calls of our own: this runs in every layer
        pointers = [None if tensor is None else tensor.data_ptr() for tensor in tensors]
        bits = 0
        for pointer in pointers:
            if pointer is not None:
                bits |= pointer
        if bits % _ALIGNMENT and self._is_special(pointers):
            # rare: a view that starts anywhere; Triton finds the variant
            self._launch(grid, tensors, sizes)
            return
        key = (index, *[None if tensor is None else tensor.dtype for tensor in tensors])
        for size in sizes:
            if not -_INT32 <= size < _INT32:
                key += tuple(-_INT32 <= size < _INT32 for size in sizes)
                break
        found = self._compiled.get(key)
        if found is None:
            compiled = self._launch(grid, tensors, sizes)
            self._compiled[key] = compiled, *started(compiled)
            return
        _, start, what = found
        stream = torch._C._cuda_getCurrentRawStream(index)
        start(*grid, 1, stream, *what, *pointers, *sizes, *self._constants)

    def _is_special(self, pointers: list[int | None]) -> bool:
        """True if a tensor starts where the usual variant would not read it."""
        odd = (at for at, pointer in enumerate(pointers) if pointer and pointer % _ALIGNMENT)
        return not self._anywhere.issuperset(odd)

    def _launch(
        self, grid: tuple[int, int], tensors: tuple[Tensor | None, ...], sizes: Sizes
    ) -> Any:
        return self._kernel[grid](*tensors, *sizes, *self._constants, **self._options)
