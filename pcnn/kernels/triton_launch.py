"""Launching Triton kernels at a few microseconds of host time.

Triton's own launch finds out at every call which variant its arguments want. Here the caller names
the variant, so that a repeated call is one dictionary look-up and the launch itself.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor

#: Sizes beyond it are 64-bit arguments, so another variant.
_INT32 = 1 << 31
_ALIGNMENT = 16


class TritonLauncher:
    """A Triton kernel whose arguments are tensors, then sizes, then compile-time constants.

    Args:
        kernel: made by ``triton.jit``; its sizes are ``do_not_specialize``.
    """

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        self._compiled: dict[tuple[Any, ...], Any] = {}
        self._interpreted = not isinstance(kernel, triton.JITFunction)

    def __call__(
        self,
        grid: tuple[int, int],
        tensors: tuple[Tensor | None, ...],
        sizes: tuple[int, ...],
        constants: tuple[Any, ...],
        num_warps: int,
        num_stages: int = 3,
    ) -> None:
        """Run the kernel on torch's current stream of the first tensor's device.

        Args:
            grid: programs along both axes; none is no launch.
            tensors: contiguous; ``None`` where the kernel takes one.
            sizes: integers that vary from call to call.
            constants: hashable.
            num_warps: warps of a program.
            num_stages: depth of the software pipeline, for loops that do not say theirs.
        """
        if 0 in grid:
            return
        first = tensors[0]
        assert first is not None
        if self._interpreted:
            self._launch(grid, tensors, sizes, constants, num_warps, num_stages)
            return
        index = first.device.index
        if index != torch.cuda.current_device():
            with torch.cuda.device(index):
                self(grid, tensors, sizes, constants, num_warps, num_stages)
            return
        pointers: list[int | None] = []
        dtypes: list[torch.dtype | None] = []
        bits = 0
        for tensor in tensors:  # one loop: this runs in every layer
            if tensor is None:
                pointers.append(None)
                dtypes.append(None)
            else:
                pointer = tensor.data_ptr()
                bits |= pointer
                pointers.append(pointer)
                dtypes.append(tensor.dtype)
        if bits % _ALIGNMENT:
            # rare: a view that starts anywhere; Triton finds the variant
            self._launch(grid, tensors, sizes, constants, num_warps, num_stages)
            return
        wide = [-_INT32 <= size < _INT32 for size in sizes]
        key = index, *dtypes, *wide, constants, num_warps, num_stages
        compiled = self._compiled.get(key)
        if compiled is None:
            compiled = self._launch(grid, tensors, sizes, constants, num_warps, num_stages)
            self._compiled[key] = compiled
            return
        stream = torch._C._cuda_getCurrentRawStream(index)
        what = compiled.function, compiled.packed_metadata, None, None, None
        compiled.run(*grid, 1, stream, *what, *pointers, *sizes, *constants)

    def _launch(
        self,
        grid: tuple[int, int],
        tensors: tuple[Tensor | None, ...],
        sizes: tuple[int, ...],
        constants: tuple[Any, ...],
        num_warps: int,
        num_stages: int,
    ) -> Any:
        launch = self.kernel[grid]
        return launch(*tensors, *sizes, *constants, num_warps=num_warps, num_stages=num_stages)
