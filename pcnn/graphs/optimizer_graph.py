"""The update of a fused optimiser as a CUDA graph.

A fused optimiser takes about a dozen launches a step, but goes over the lists of its parameters,
gradients and states in Python first. A graph of the launches leaves one call of that. It reads and
writes fixed memory: parameters, gradients and states where they lay at its capture, and the rate of
every group, the scale of the gradients and whether the step is left out in tensors of their own,
which are filled in front of every replay. Groups, states and schedules stay those of the optimiser.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from itertools import chain
from types import MethodType
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from pcnn.graphs.capture import Capture, Work

#: Optimisers whose fused step reads its rate from the device, with the state they always have.
SERVED = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW)
#: Settings that a schedule changes, and no graph holds.
_FILLED = ("params", "lr", "initial_lr")
#: Tensors that `torch.amp.GradScaler` and `FiniteSteps` give to a fused optimiser.
_TOLD = ("grad_scale", "found_inf")


def update_as_graph(optimizer: Optimizer, capture: Capture) -> OptimizerGraph | None:
    """Let the step of an optimiser replay its update, if it is one that a graph can hold.

    Call it before a schedule is made: schedules put a step of their own around it.
    """
    numbers = chain.from_iterable(group.items() for group in optimizer.param_groups)
    if type(optimizer) not in SERVED or not all(
        group.get("fused") and not group.get("differentiable") for group in optimizer.param_groups
    ):
        return None
    if any(isinstance(value, Tensor) for name, value in numbers if name not in _FILLED):
        return None  # betas on the device are read by the host
    # the class's step without its hooks, which the step below calls
    plain: Callable[[Optimizer], Any] = type(optimizer).step.__wrapped__  # type: ignore[attr-defined]
    graph = OptimizerGraph(optimizer, plain, capture)

    @functools.wraps(plain)
    def step(self: Optimizer, closure: Callable[[], float] | None = None) -> float | None:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        graph.update(self)
        return loss

    hooked = Optimizer.profile_hook_step(step)
    optimizer.step = MethodType(hooked, optimizer)  # type: ignore[method-assign]
    return graph


def _memory_of(optimizer: Optimizer) -> tuple[list[Any], list[Any]]:
    """All that a graph holds, equal where one graph serves both; and its states, to be kept."""
    groups = optimizer.param_groups
    settings: list[Any] = [getattr(optimizer, name, None) is None for name in _TOLD]
    for group in groups:
        settings.append([item for item in group.items() if item[0] not in _FILLED])
        settings.append(len(group["params"]))
    parameters = [parameter for group in groups for parameter in group["params"]]
    addresses = list(map(Tensor.data_ptr, parameters))
    for parameter in parameters:
        gradient = parameter.grad
        addresses.append(0 if gradient is None else gradient.data_ptr())
    # few: each is kept, so that no later one has its place
    states = list(chain.from_iterable(map(dict.values, optimizer.state.values())))
    return [settings, addresses, list(map(id, states))], states


class OptimizerGraph:
    """The updates of one optimiser.

    A step whose memory is that of the step before is captured. One whose memory differs runs
    eagerly: the first one, which makes the states, one with other gradients or settings.
    """

    def __init__(
        self, optimizer: Optimizer, plain: Callable[[Optimizer], Any], capture: Capture
    ) -> None:
        device = optimizer.param_groups[0]["params"][0].device
        self._plain, self._capture, self._device = plain, capture, device
        self._rates: list[Tensor] = []  # float32 [], one a group
        self._filled: list[Any] = []  # what they hold
        self._told = {name: torch.zeros((), device=device) for name in _TOLD}
        self._last: Any = None, None  # memory behind the last step
        self._held: Any = None, None  # and of the graph
        self._replay: Work | None = None
        self.replays = 0

    @torch.no_grad()
    def update(self, optimizer: Optimizer) -> None:
        """Update the parameters from their gradients; nothing waits."""
        self._fill(optimizer)
        memory = _memory_of(optimizer)
        if self._replay is not None and self._held[0] == memory[0]:
            self.replays += 1
        elif self._last[0] == memory[0]:
            groups = self._groups(optimizer)
            self._replay = self._capture(lambda: self._eager(optimizer, groups))
            self._held = memory
        else:
            self._eager(optimizer, self._groups(optimizer))
            self._last = _memory_of(optimizer)
            return
        self._replay()
        self._last = memory

    def _eager(self, optimizer: Optimizer, groups: list[dict[str, Any]]) -> None:
        """Take a step whose groups and numbers lie in this memory."""
        if self._device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            for group in groups:
                group["capturable"] = True  # as it is: the steps are on the device
        own, told = optimizer.param_groups, {}
        for name, tensor in self._told.items():
            if getattr(optimizer, name, None) is not None:
                told[name] = getattr(optimizer, name)
                setattr(optimizer, name, tensor)
        optimizer.param_groups = groups
        try:
            self._plain(optimizer)
        finally:
            optimizer.param_groups = own
            for name, tensor in told.items():
                setattr(optimizer, name, tensor)

    def _groups(self, optimizer: Optimizer) -> list[dict[str, Any]]:
        """Groups with their rates on the device."""
        pairs = zip(optimizer.param_groups, self._rates, strict=True)
        return [{**group, "lr": rate} for group, rate in pairs]

    def _fill(self, optimizer: Optimizer) -> None:
        """Put the numbers of this step where its launches read them."""
        groups = optimizer.param_groups
        if len(self._rates) != len(groups):
            self._rates = list(torch.zeros(len(groups), device=self._device).unbind())
            self._filled = [None] * len(groups)
            self._replay = None
        for place, group in enumerate(groups):
            given = group["lr"]
            if isinstance(given, Tensor):
                self._rates[place].copy_(given)
                self._filled[place] = None
            elif given != self._filled[place]:
                self._rates[place].fill_(given)
                self._filled[place] = given
        for name, own in self._told.items():
            told = getattr(optimizer, name, None)
            if told is not None:
                own.copy_(told.reshape(()), non_blocking=True)
