"""The base of all tasks: a network with its optimiser, schedule and batches."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import lightning as L
import torch
from lightning.pytorch.plugins.precision import Precision
from lightning.pytorch.utilities import GradClipAlgorithmType
from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from pcnn.callbacks.lightning_internals import log_again
from pcnn.config import named_after
from pcnn.errors import UserError
from pcnn.graphs.memory import plans_inside
from pcnn.kernels.streams import SideStream
from pcnn.messages import counted
from pcnn.nn import PlannedModule
from pcnn.tasks.fused_optimizer import UpdateScaler, leaves_steps_out, made_for
from pcnn.tensor import SparseTensor

log = logging.getLogger(__name__)

#: Sizes of batches whose steps are kept as graphs.
STEP_SIZES = 24


class NetworkTask(L.LightningModule):
    """A network with its optimiser and schedule; steps and metrics are for a task to add.

    A batch has `tensor` (SparseTensor; or what `inputs` says), `batch_size`,
    `to(device, non_blocking=...)` and `tensors()`, every tensor beside the network's input.
    """

    def __init__(
        self,
        net: nn.Module,
        optimizer: Callable[..., Optimizer],
        scheduler: Callable[..., LRScheduler],
        decay_norms_and_biases: bool = False,
        prefetch_maps: bool = True,
        cuda_graphs: bool = False,
    ) -> None:
        super().__init__()
        self.net = net
        self.make_optimizer = optimizer
        self.make_scheduler = scheduler
        self.decay_norms_and_biases = decay_norms_and_biases
        self.prefetch_maps = prefetch_maps
        self.cuda_graphs = cuda_graphs
        #: Factor of the learning rate from a stage of the network to the one before it.
        self.layer_decay = 1.0
        self._frozen: list[nn.Module] = []
        self._side: SideStream | None = None
        # what the steps of an epoch learnt from, on the device, and how many steps these were
        self._taught: Tensor | int = 0
        self._steps = 0

    def run(self, tensor: Any) -> Any:
        """Output of the network."""
        return self.net(tensor)

    def inputs(self, batch: Any) -> Sequence[SparseTensor]:
        """Inputs of the network in a step of this batch."""
        return (batch.tensor,)

    def arrived(self, batch: Any) -> Any:
        """Complete a batch that has just come onto the device; for a task to fill."""
        return batch

    def transfer_batch_to_device(
        self, batch: Any, device: torch.device, dataloader_idx: int
    ) -> Any:
        """Move a batch; its maps are planned on the way where the device can do both at once."""
        net = self.net
        if device.type != "cuda" or not self.prefetch_maps or not isinstance(net, PlannedModule):
            return self.arrived(super().transfer_batch_to_device(batch, device, dataloader_idx))

        if self._side is None or self._side.device != device:
            self._side = SideStream(device)

        def prepare() -> Any:
            moved = self.arrived(batch.to(device, non_blocking=True))
            for tensor in self.inputs(moved):
                inside = plans_inside(tensor, net.planner, self.training)
                if not (inside and net.graphs and net.graphs_reason is None):
                    net.planner(tensor.geometry, self.training)
            return moved

        def tensors(moved: Any) -> Iterator[Tensor]:
            yield from moved.tensors()
            for tensor in self.inputs(moved):
                yield from (tensor.features, *tensor.geometry.all_tensors())

        return self._side.run(prepare, tensors)

    def on_train_start(self) -> None:
        """Let steps be graphs at the first batch of a size, whose gradients stay in place.

        Then the update behind them is one, too.
        """
        if not self.cuda_graphs or not isinstance(self.net, PlannedModule):
            return
        self.net.graphs = True
        self.net.start_graphs(after=1, most=STEP_SIZES, in_place=True)
        plugin: Any = self.trainer.precision_plugin
        plain = type(getattr(plugin, "scaler", None)) is torch.amp.GradScaler
        if plain and self.device.type == "cuda" and leaves_steps_out(self.trainer.optimizers[0]):
            plugin.scaler = UpdateScaler.like(plugin.scaler, self.device)

    def optimizer_zero_grad(self, epoch: int, batch_idx: int, optimizer: Optimizer) -> None:
        """Let gradients go, in half the time of torch's own way."""
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = None

    def on_train_epoch_end(self) -> None:
        self._check_taught()

    def on_train_end(self) -> None:
        """The same of a part of an epoch; graphs give their memory back."""
        if isinstance(self.net, PlannedModule):
            if self.cuda_graphs and self.net.graphs_reason is not None:
                log.info("steps ran eagerly: %s", self.net.graphs_reason)
            self.net.release_graphs()
        scaler = getattr(self.trainer.precision_plugin, "scaler", None)
        if isinstance(scaler, UpdateScaler) and scaler.reason is not None:
            log.info("updates ran eagerly: %s", scaler.reason)
        self._check_taught()

    def taught(self) -> Tensor | int:
        """What the steps of this epoch learnt from; for a task that counts it anyway to say."""
        return self._taught

    def _check_taught(self) -> None:
        """UserError for an epoch in which no step of any rank had anything to learn from."""
        steps, self._steps = self._steps, 0
        taught, self._taught = torch.as_tensor(self.taught(), device=self.device), 0
        total = self.trainer.strategy.reduce(taught.float(), reduce_op="sum")
        if steps and float(total) == 0:
            raise UserError(
                f"nothing was learnt in {counted(steps, 'step')}: no row had a label that counts, "
                "or no pair a true match.\npossible: labels and classes of dataset.root, "
                "dataset.crop, dataset.voxel_size (metres)"
            )

    @property
    def is_logged(self) -> bool:
        """Whether the figures of this step go to the loggers; others cost launches for nothing."""
        trainer: Any = self.trainer  # which sets these where mypy cannot see it
        every = trainer.log_every_n_steps
        return bool(trainer.fast_dev_run or (every and (trainer.global_step + 1) % every == 0))

    def log_loss(self, loss: Tensor, batch_size: int) -> None:
        """Log `train/loss`."""
        if not log_again(self.trainer, "train/loss", loss.detach()):
            self.log("train/loss", loss.detach(), batch_size=batch_size)

    def log_step(self, taught: Tensor | int, batch_size: int) -> None:
        """Count what a step learns from, labelled rows or positives, and log `train/lr`."""
        self._taught = self._taught + taught
        self._steps += 1
        if self.is_logged:
            # filled by the device: a number of the host would wait for it
            given = self.trainer.optimizers[0].param_groups[0]["lr"]
            rate = torch.full((), float(given), device=self.device)
            self.log("train/lr", rate, batch_size=batch_size)

    def configure_gradient_clipping(
        self,
        optimizer: Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip gradients, those of a fused optimiser unscaled before; nothing waits.

        Lightning refuses to: a fused optimiser can unscale gradients itself, behind this.
        """
        plugin = self.trainer.precision_plugin
        scaler = getattr(plugin, "scaler", None)
        if scaler is None or not leaves_steps_out(optimizer):
            self.clip_gradients(optimizer, gradient_clip_val, gradient_clip_algorithm)
            return
        clip = None
        if gradient_clip_val:
            algorithm = GradClipAlgorithmType(gradient_clip_algorithm or "norm")
            given = plugin, optimizer, gradient_clip_val, algorithm
            clip = partial(Precision.clip_gradients, *given)
        if isinstance(scaler, UpdateScaler):
            scaler.clip = clip
        elif clip is not None:
            scaler.unscale_(optimizer)
            clip()

    def freeze_layers(self, patterns: Sequence[str]) -> None:
        """Keep layers from learning, and their norms at the statistics that they have."""
        self._frozen = matching(self.net, patterns)
        still(self._frozen)

    def train(self, mode: bool = True) -> NetworkTask:
        """Switch between training and evaluation, in which frozen layers stay."""
        super().train(mode)
        still(self._frozen)
        return self

    def _rates(self) -> Mapping[int, float] | None:
        """The rate of every parameter, by its identity; None where one serves all."""
        if self.layer_decay == 1.0:
            return None
        given = getattr(self.make_optimizer, "keywords", {})
        if "lr" not in given:
            raise UserError("layer_decay needs task.optimizer.lr")
        behind = depths(self.net)
        return {
            id(one): given["lr"] * self.layer_decay ** behind.get(id(one), 0)
            for one in self.net.parameters()
        }

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        """The optimiser, and its schedule stepped after every optimiser step."""
        rates = self._rates()
        groups = parameter_groups(self.net, self.decay_norms_and_biases, rates)
        if not groups:
            raise UserError("freeze leaves no layer to train")
        with named_after("task.optimizer", getattr(self.make_optimizer, "keywords", None)):
            optimizer = made_for(self.device, self.make_optimizer, groups)
        total = int(self.trainer.estimated_stepping_batches)
        with named_after("task.scheduler", getattr(self.make_scheduler, "keywords", None)):
            schedule = self.make_scheduler(optimizer, total_steps=total)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def parameter_groups(
    module: nn.Module,
    decay_norms_and_biases: bool = True,
    rates: Mapping[int, float] | None = None,
) -> list[dict[str, Any]]:
    """Parameter groups for an optimiser."""
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    if rates is not None:
        found: list[dict[str, Any]] = []
        for rate in sorted({rates[id(one)] for one in parameters}, reverse=True):
            own = nn.ParameterList([one for one in parameters if rates[id(one)] == rate])
            found += [{**g, "lr": rate} for g in parameter_groups(own, decay_norms_and_biases)]
        return found
    if decay_norms_and_biases:
        return [{"params": parameters}]
    groups: list[dict[str, Any]] = [
        {"params": [one for one in parameters if one.ndim >= 2]},
        {"params": [one for one in parameters if one.ndim < 2], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def matching(net: nn.Module, patterns: Sequence[str]) -> list[nn.Module]:
    """Modules whose dotted names match a pattern, as of a shell: ``stem``, ``encoder.*``."""
    names = {name: module for name, module in net.named_modules() if name}
    found: dict[str, nn.Module] = {}
    for pattern in patterns:
        these = [name for name in names if fnmatchcase(name, pattern)]
        if not these:
            layers = ", ".join(stages(net))
            raise ValueError(f"no layer is called {pattern!r}; there are {layers}")
        found |= {name: names[name] for name in these}
    return list(found.values())


def stages(net: nn.Module) -> dict[str, nn.Module]:
    """Parts of a network by name, in its own order: its modules, and those in lists of them."""
    found: dict[str, nn.Module] = {}
    for name, child in net.named_children():
        if isinstance(child, nn.ModuleList):
            found |= {f"{name}.{number}": part for number, part in enumerate(child)}
        else:
            found[name] = child
    return found


def depths(net: nn.Module) -> Mapping[int, int]:
    """How many stages with parameters stand behind that of every parameter, by its identity.

    A parameter of the last stage has 0, as has one that belongs to no stage.
    """
    parts = [list(stage.parameters()) for stage in stages(net).values()]
    parts = [part for part in parts if part]
    return {
        id(parameter): len(parts) - 1 - number
        for number, part in enumerate(parts)
        for parameter in part
    }


def still(modules: Iterable[nn.Module]) -> None:
    """Keep modules from learning: their parameters get no gradients, their norms no statistics."""
    for module in modules:
        module.requires_grad_(False)
        module.eval()
