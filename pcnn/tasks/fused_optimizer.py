"""Optimisers that update all parameters in a few launches, on GPUs, and updates as one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from pcnn.errors import first_line
from pcnn.graphs.capture import Capture, CudaGraphs, Work

#: Those whose `fused` torch has on GPUs. Subclasses may do more than that.
FUSED = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW)
#: Graphs of updates that are made in a training at most: gradients may never lie still.
CAPTURES = 8


def made_for(
    device: torch.device, factory: Callable[..., Optimizer], groups: list[dict[str, Any]]
) -> Optimizer:
    """Make an optimiser, fused on a CUDA device where torch has it and nothing else is asked for.

    A fused optimiser reads and writes every parameter once, and can leave a step out without
    telling the host. The state of any other one loads into it, and its own into any other.
    """
    given: Mapping[str, Any] = factory.keywords if isinstance(factory, partial) else {}
    kind = factory.func if isinstance(factory, partial) else factory
    asked = any(given.get(name) is not None for name in ("fused", "foreach"))
    asked = asked or bool(given.get("dampening"))  # see `fill_momentum`
    if device.type == "cuda" and kind in FUSED and not asked:
        optimizer = factory(groups, fused=True)
    else:
        optimizer = factory(groups)
    optimizer.register_load_state_dict_pre_hook(keep_implementation)
    fill_momentum(optimizer)
    optimizer.register_load_state_dict_post_hook(fill_momentum)
    if leaves_steps_out(optimizer):
        optimizer.register_step_post_hook(count_changes)
    return optimizer


def fill_momentum(optimizer: Optimizer) -> None:
    """Begin the momentum of a fused SGD with zeros, which gives the first step that torch defines.

    Torch's own first step allocates it, and writes nothing there where the step is left out: the
    next one would go on from whatever the memory held. With dampening torch's first step is
    another one than from zeros, so such an optimiser is not fused here.
    """
    if type(optimizer) is not torch.optim.SGD:
        return
    for group in optimizer.param_groups:
        if group["fused"] and group["momentum"] and not group["dampening"]:
            for parameter in group["params"]:
                state = optimizer.state[parameter]
                if state.get("momentum_buffer") is None:
                    state["momentum_buffer"] = torch.zeros_like(parameter)


def count_changes(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
    """Count the change of all parameters, which torch's fused steps leave out.

    Values that were computed from weights and kept look at that count (`pcnn.graphs.snapshot`).
    """
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    torch.autograd.graph.increment_version(parameters)


def keep_implementation(optimizer: Optimizer, state: dict[str, Any]) -> dict[str, Any]:
    """A state to load, with the optimiser's own choice of `fused` and `foreach`."""
    own = [
        {name: group[name] for name in ("fused", "foreach") if name in group}
        for group in optimizer.param_groups
    ]
    groups = [{**saved, **kept} for saved, kept in zip(state["param_groups"], own, strict=True)]
    return {**state, "param_groups": groups}


def leaves_steps_out(optimizer: Optimizer) -> bool:
    """Whether a step with ``optimizer.found_inf`` of 1, float32 ``[1]``, changes nothing."""
    return bool(getattr(optimizer, "_step_supports_amp_scaling", False))


class UpdateScaler(torch.amp.GradScaler):
    """A scaler whose `step` unscales, clips, updates weights and scale: as one CUDA graph.

    That is captured once gradients lie where they lay in the step before, and serves those steps
    that have them, weights, states and settings where it was captured with them. All others do the
    same operations one by one. Rates are float32 numbers on the device for both.
    """

    def __init__(self, device: str, capture: Capture | None = None, **settings: Any) -> None:
        super().__init__(device, **settings)
        #: clips gradients that are no longer scaled
        self.clip: partial[None] | None = None
        #: why updates are no graphs
        self.reason: str | None = None
        self._capture = capture
        self._captures = CAPTURES
        self._rates: list[Tensor] = []
        self._graph: Work | None = None
        self._captured: tuple[Any, ...] = ()  # what the graph was captured with
        self._before: tuple[Any, ...] = ()  # what the last step had

    @classmethod
    def like(cls, other: torch.amp.GradScaler, device: torch.device) -> UpdateScaler:
        """A scaler in the place and the state of another one."""
        made = cls(device.type, CudaGraphs(device))
        vars(made).update(vars(other))
        return made

    def step(self, optimizer: Optimizer, *args: Any, **kwargs: Any) -> None:
        """Update weights and scale."""
        if not self._rates:
            device = optimizer.param_groups[0]["params"][0].device
            self._rates = [torch.zeros((), device=device) for _ in optimizer.param_groups]
            optimizer.register_load_state_dict_post_hook(self._forget)
        for rate, group in zip(self._rates, optimizer.param_groups, strict=True):
            rate.fill_(group["lr"])
        now = self._situation(optimizer)
        if now == self._before != self._captured and self._captures:
            self._capture_update(optimizer, now)
        self._before = now
        if now == self._captured and self._graph is not None:
            self._graph()
            count_changes(optimizer, (), {})
        else:
            self._updated(optimizer)

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """Nothing is left to do, unless a scale is given."""
        if new_scale is not None:
            super().update(new_scale)

    def _capture_update(self, optimizer: Optimizer, now: tuple[Any, ...]) -> None:
        self._captures -= 1
        if self._capture is None:
            return
        try:
            self._graph = self._capture(partial(self._updated, optimizer))
            self._captured = now
        except RuntimeError as error:  # nothing was changed
            self._captures, self.reason = 0, first_line(error)
            self._per_optimizer_states.clear()
            for name in ("grad_scale", "found_inf"):
                vars(optimizer).pop(name, None)

    def _forget(self, optimizer: Optimizer) -> None:
        self._graph, self._captured, self._before = None, (), ()

    def _situation(self, optimizer: Optimizer) -> tuple[Any, ...]:
        """All that a graph holds: addresses and settings."""
        parameters = [one for group in optimizer.param_groups for one in group["params"]]
        gradients = [one.grad for one in parameters]
        settings = [
            {key: value for key, value in group.items() if key not in ("params", "lr")}
            for group in optimizer.param_groups
        ]
        return (
            list(map(Tensor.data_ptr, parameters)),
            [0 if one is None else one.data_ptr() for one in gradients],
            self.clip and self.clip.args,
            settings,
        )

    def _updated(self, optimizer: Optimizer) -> None:
        if self.clip is not None:
            self.unscale_(optimizer)
            self.clip()
        own = [dict(group) for group in optimizer.param_groups]
        for rate, group in zip(self._rates, optimizer.param_groups, strict=True):
            group["lr"] = rate
            if "capturable" in group:
                group["capturable"] = True
        try:
            super().step(optimizer)
        finally:
            for kept, group in zip(own, optimizer.param_groups, strict=True):
                group.update(kept)
        super().update()
