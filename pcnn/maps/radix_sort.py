"""Sorting on a device: least-significant-digit radix sort of packed keys with their rows."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from pcnn.kernels import cuda
from pcnn.kernels.structs import packer

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


class RadixSort(NamedTuple):
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
    def buffers(self) -> dict[str, int]:
        """Addresses of both key buffers, both value buffers and the state, as kernels take them."""
        keys, values = self.keys.data_ptr(), self.values.data_ptr()
        sides = {"keys_a": keys, "keys_b": keys + self.keys.nbytes // 2, "values_a": values}
        return sides | {"values_b": values + 4 * self.items, "state": self.state.data_ptr()}

    def run(self, passes: int) -> None:
        """Sort what the caller's kernel wrote."""
        tiles, buffers = -(-self.items // TILE), self.buffers.values()
        module = cuda.module("radix_sort.cu", self.keys.device)
        kernel = "radix_pass" if self.keys.dtype == torch.int64 else "radix_pass_32"
        pack = packer("radix_sort.cu", "PassArguments")
        for number in range(passes):
            module.run(kernel, tiles, pack(*buffers, tiles, number))
