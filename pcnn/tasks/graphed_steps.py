"""Steps of a training as CUDA graphs, inside Lightning's automatic optimisation.

`training_step` replays forward, `backward` replays the gradients of its loss and hands them over.
All else is Lightning's and the callbacks', as in an eager step: the loss, its scaling, zeroing and
adding up gradients, clipping, the optimiser and its schedule, averages of weights, checkpoints.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from pcnn.errors import UserError
from pcnn.graphs.capture import Capture, CudaGraphs, Figures
from pcnn.graphs.step_graph import Beside, Learn, StepGraphs
from pcnn.ops.plan import Planner
from pcnn.tensor import SparseTensor


class GraphedSteps:
    """The steps of one training.

    On several devices gradients are averaged here, in one piece, and not by
    `DistributedDataParallel`, whose hooks no graph calls. Nor does that send the buffers of the
    first rank to all in front of every step: no step reads running statistics, evaluations do
    (`share_buffers`).
    """

    def __init__(self, trainer: Trainer, net: nn.Module, learn: Learn, capture: Capture) -> None:
        if type(trainer.strategy) not in (SingleDeviceStrategy, DDPStrategy):
            raise UserError(
                f"trainer.cuda_graphs=true: {type(trainer.strategy).__name__} takes gradients from "
                "hooks, which no CUDA graph calls.\npossible: trainer.strategy=auto or ddp, or "
                "trainer.cuda_graphs=false"
            )
        if any(isinstance(module, nn.SyncBatchNorm) for module in net.modules()):
            raise UserError(
                "trainer.cuda_graphs=true: norms over all devices (trainer.sync_batchnorm=true) "
                "count spare rows.\npossible: trainer.sync_batchnorm=false, or "
                "trainer.cuda_graphs=false"
            )
        self.trainer = trainer
        self._trained, self._buffers = trained(net), list(net.buffers())
        self._memory = memory_of(net)
        own = getattr(net, "planner", None)
        planner = own if isinstance(own, Planner) else Planner(net)
        self.graphs = StepGraphs(learn, self._trained, planner, capture)

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy of a task has graphs of its own, made when it trains."""
        return type(None), ()

    def serves(self, net: nn.Module) -> bool:
        """True while the same parameters learn, and all tensors lie where graphs find them."""
        return self._memory == memory_of(net)

    def forward(self, inputs: Sequence[SparseTensor], beside: Beside) -> Figures:
        """Figures of a batch; see `StepGraphs.forward`."""
        return self.graphs.forward(inputs, beside)

    def backward(self, loss: Tensor) -> None:
        """Gradients of a loss of the last figures; of all devices where a sum is complete."""
        self.graphs.backward(loss)
        # a replay counts no change, but folded norms look at it
        torch.autograd.graph.increment_version(self._buffers)
        held = self.graphs.gradients.hand_over(self.trainer.accumulate_grad_batches > 1)
        model = self.trainer.strategy.model
        if isinstance(model, DistributedDataParallel) and model.require_backward_grad_sync:
            for piece in held:
                piece.div_(self.trainer.world_size)
                torch.distributed.all_reduce(piece)
        self.share_buffers(False)

    def share_buffers(self, shared: bool) -> None:
        """Whether all ranks take the buffers of the first one in front of the next forward."""
        model = self.trainer.strategy.model
        if isinstance(model, DistributedDataParallel):
            model.broadcast_buffers = shared

    def in_pieces(self, optimizer: Optimizer) -> AbstractContextManager[None]:
        """See `Gradients.in_pieces`, of the gradients that `backward` handed over."""
        return self.graphs.gradients.in_pieces(optimizer)


def trained(net: nn.Module) -> list[nn.Parameter]:
    """Parameters that learn."""
    return [parameter for parameter in net.parameters() if parameter.requires_grad]


def memory_of(net: nn.Module) -> list[tuple[int, bool]]:
    """Addresses of parameters and buffers, and which of them learn.

    Asked in every step, so it goes over modules without their names.
    """
    found, modules = [], [net]
    while modules:
        module = modules.pop()
        for tensor in (*module._parameters.values(), *module._buffers.values()):
            if tensor is not None:
                found.append((tensor.data_ptr(), tensor.requires_grad))
        modules += [child for child in module._modules.values() if child is not None]
    return found


def capture_on(device: torch.device) -> Capture | None:
    """The capture of graphs on a device; ``None`` where there are none."""
    return CudaGraphs(device) if device.type == "cuda" else None
