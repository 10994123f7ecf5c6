"""Sorting on a device: least-significant-digit radix sort of packed keys with their rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pcnn.kernels import cuda

TILE = 2048
RADIX = 256
MAX_PASSES = 8
STATE_WORDS = 16 + MAX_PASSES * RADIX

#: Blocks of kernels that walk over their input: enough to fill any device, few enough that adding
#: their histograms together costs nothing.
KEY_BLOCKS = 264

#: Items one sort takes: look-back words hold 30 bits.
MAX_ITEMS = (1 << 30) - 1


def passes_of(bits: int) -> int:
    """Passes that sort keys of so many bits."""
    return min(MAX_PASSES, -(-bits // 8))


def state_words(items: int) -> int:
    """Words of the state of a sort of so many items."""
    return STATE_WORDS + MAX_PASSES * max(1, -(-items // TILE)) * RADIX


@dataclass(frozen=True)
class RadixSort:
    """Scratch of one sort."""

    keys: Tensor  # [2, items] int64 or int32, both sides; sorted keys end up in the first row
    values: Tensor  # [2, items] int32, likewise
    state: Tensor  # counters, histogram and look-back words (csrc/radix.cuh)

    @classmethod
    def of(
        cls,
        items: int,
        device: torch.device,
        state: Tensor | None = None,  # [state_words(items)] int32, zeroed; made if not given
        dtype: torch.dtype = torch.int64,
    ) -> RadixSort:
        """Allocate scratch for so many items."""
        if items > MAX_ITEMS:
            raise ValueError(f"one sort takes at most {MAX_ITEMS} items, got {items}")
        if state is None:
            state = torch.zeros(state_words(items), dtype=torch.int32, device=device)
        return cls(
            torch.empty(2, items, dtype=dtype, device=device),
            torch.empty(2, items, dtype=torch.int32, device=device),
            state,
        )

    @property
    def items(self) -> int:
        """Number of items the scratch has room for."""
        return self.keys.shape[1]

    @property
    def buffers(self) -> dict[str, Any]:
        """Both key buffers, both value buffers and the state, as fields of a kernel's struct."""
        sides = {"keys_a": self.keys[0], "keys_b": self.keys[1], "state": self.state}
        return sides | {"values_a": self.values[0], "values_b": self.values[1]}

    def run(self, passes: int) -> None:
        """Sort what the caller's kernel wrote."""
        tiles, buffers = -(-self.items // TILE), self.buffers
        module = cuda.module("radix_sort.cu", self.keys.device)
        kernel = "radix_pass" if self.keys.dtype == torch.int64 else "radix_pass_32"
        for number in range(passes):
            module.launch(kernel, tiles, **buffers, tiles=tiles, number=number)
