"""Optimisers that update all parameters in a few launches, on GPUs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch.optim import Optimizer

#: Those whose `fused` torch has on GPUs. Subclasses may do more than that.
FUSED = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW)


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
