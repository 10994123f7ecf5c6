"""Activations of residual blocks that are computed again in backward, in place of being kept."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint

from pcnn.models.blocks import ResidualBlock
from pcnn.tensor import SparseTensor


def checkpoint_activations(net: nn.Module, levels: Collection[int]) -> int:
    """Let the residual blocks of some levels keep their inputs alone while a network trains.

    Their forward runs once more in backward: the gradients are the same, the memory of their inner
    activations is free in between, and a step takes longer by the forward of these blocks. Running
    statistics move once. Level 0 is the resolution of the input, level 1 half of it, and so on.
    """
    if any(level < 0 for level in levels):
        raise ValueError(
            f"activation_checkpointing={list(levels)}: levels count from 0, the finest"
        )
    blocks = [module for module in net.modules() if isinstance(module, ResidualBlock)]
    if levels and not blocks:
        raise ValueError(f"activation_checkpointing: {type(net).__name__} has no residual blocks")
    for block in blocks:
        block.__dict__["forward"] = Recomputed(block, frozenset(levels))
    return len(blocks)


class Recomputed:
    """The forward of a block, which is computed again in backward at some levels."""

    def __init__(self, block: ResidualBlock, levels: frozenset[int]) -> None:
        self.block, self.levels = block, levels

    def __call__(self, x: SparseTensor) -> SparseTensor:
        """Features ``[N_in, C_in]`` to ``[N_out, C_out]``."""
        block = self.block
        trains = block.training and torch.is_grad_enabled()
        if not trains or max(x.tensor_stride).bit_length() - 1 not in self.levels:
            return type(block).forward(block, x)
        out: SparseTensor = checkpoint(
            type(block).forward,
            block,
            x,
            use_reentrant=False,
            preserve_rng_state=False,  # blocks draw no random numbers
            context_fn=self._contexts,
        )
        return out

    def _contexts(self) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        return nullcontext(), unmoved_statistics(self.block)


@contextmanager
def unmoved_statistics(module: nn.Module) -> Iterator[None]:
    """Keep running statistics of norms as they are while a forward is repeated."""
    norms = [each for each in module.modules() if isinstance(each, _BatchNorm)]
    buffers = [buffer for norm in norms for buffer in norm.buffers()]
    before = [buffer.clone() for buffer in buffers]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, value in zip(buffers, before, strict=True):
                buffer.copy_(value)
