"""Names in a trace: what Lightning and the task are doing, and which module."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lightning.pytorch.profilers import Profiler
from torch import nn
from torch.profiler import record_function

#: Before the name of a module, and of an action of Lightning.
MODULE, ACTION = "pcnn.module ", "pcnn.action "


class ActionRanges(Profiler):
    """Lightning's own actions (hooks of tasks and callbacks, backward, transfers) as ranges.

    Attributes:
        on: whether they are recorded. Ranges that are open when it changes end as they began.
    """

    def __init__(self) -> None:
        super().__init__()
        self.on = False
        self._open: list[tuple[str, Any]] = []

    def start(self, action_name: str) -> None:
        """Begin a range."""
        found = record_function(ACTION + action_name) if self.on else None
        if found is not None:
            found.__enter__()
        self._open.append((action_name, found))

    def stop(self, action_name: str) -> None:
        """End the last range of this name."""
        for place in range(len(self._open) - 1, -1, -1):
            name, found = self._open[place]
            if name == action_name:
                del self._open[place]
                if found is not None:
                    found.__exit__(None, None, None)
                return


@contextmanager
def module_ranges(root: nn.Module) -> Iterator[None]:
    """Calls of modules as ranges: of the loss, and of modules that are made of several.

    Layers are left alone: those that are hooked run one after another and not as one
    (`pcnn.nn.fused`), which would be another step than the one that is measured.

    Args:
        root: names are those below it.
    """
    ranges: dict[str, list[Any]] = {}
    handles = []

    def begin(name: str) -> Any:
        def hook(*_: Any) -> None:
            found = record_function(MODULE + name)
            found.__enter__()
            ranges.setdefault(name, []).append(found)

        return hook

    def end(name: str) -> Any:
        def hook(*_: Any) -> None:
            ranges[name].pop().__exit__(None, None, None)

        return hook

    for name, module in root.named_modules():
        if name == "loss" or (name and holds_others(module)):
            handles.append(module.register_forward_pre_hook(begin(name)))
            handles.append(module.register_forward_hook(end(name)))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def holds_others(module: nn.Module) -> bool:
    """Whether a module is made of several modules; a norm in its wrapper is one."""
    return len(list(module.children())) > 1 and not list(module.parameters(recurse=False))
