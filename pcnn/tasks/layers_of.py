"""Layers of a network by pattern and by depth, for trainings that begin with given weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from torch import nn


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
