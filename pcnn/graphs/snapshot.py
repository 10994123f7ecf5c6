"""Snapshots of tensors, which tell if a value computed from them is still valid."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from operator import is_
from typing import Any

from torch import Tensor
from torch.nn import Module, Parameter
from torch.nn.modules.module import _has_any_global_hook


class Snapshot:
    """Tensors as they were, by identity, address and torch's count of in-place changes.

    A new tensor in a module (`to` for buffers, `load_state_dict(assign=True)`) changes the
    identity, ``parameter.data = ...`` (`to` for parameters) the address, a change in place the
    version. The memory is kept alive, so that nothing else can come to lie at its address. What
    writes into ``tensor.data`` in place goes around the version and is not seen.
    """

    __slots__ = ("_kept",)

    def __init__(self, tensors: Sequence[Tensor | None]) -> None:
        self._kept = tuple(
            (t, 0, 0, None) if t is None else (t, t.data_ptr(), t._version, t.detach())
            for t in tensors
        )

    @staticmethod
    def is_possible(tensors: Sequence[Tensor | None]) -> bool:
        """True if changes can be seen.

        Tensors made in inference mode do not count theirs, and classes of tensors other than
        torch's own keep their values elsewhere.
        """
        return all(
            tensor is None or (type(tensor) in (Tensor, Parameter) and not tensor.is_inference())
            for tensor in tensors
        )

    def holds(self, tensors: Sequence[Tensor | None]) -> bool:
        """True if these are the remembered tensors, unchanged; under a microsecond for four."""
        # no zip(strict=True), no generator: this runs for every layer of every call
        for (kept, address, version, _), tensor in zip(self._kept, tensors):  # noqa: B905
            if tensor is not kept:
                return False
            if tensor is not None and (tensor._version != version or tensor.data_ptr() != address):
                return False
        return True


#: What a module holds by name, beside its other attributes.
_MEMBERS = ("_modules", "_parameters", "_buffers")
_HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
)


class NetworkSnapshot:
    """The modules of a network as they were, with all attributes of every one of them.

    It sees what a `Snapshot` sees of parameters and buffers, hooks, modes, and whatever else was
    exchanged, added or removed; not what changes inside of an attribute. Without ``values`` it sees
    of tensors where they lie and whether they learn, as steps change what they hold.
    """

    def __init__(self, network: Module, values: bool = True) -> None:
        self._members: list[dict[str, Any]] = []  # which modules keep for life
        for module in network.modules():
            own = module.__dict__
            self._members += own, *(own[name] for name in (*_MEMBERS, *_HOOKS))
        self._kept = self._found()
        self._tensors = [one for one in self._kept if isinstance(one, Tensor)]
        self._snapshot = Snapshot(self._tensors) if values else None
        self._places = [] if values else self._lie()

    def holds(self) -> bool:
        """True if the network is as it was."""
        found = self._found()
        if len(found) != len(self._kept) or not all(map(is_, found, self._kept)):
            return False
        if self._snapshot is None:
            return self._lie() == self._places
        return self._snapshot.holds(self._tensors)

    def _lie(self) -> list[tuple[int, bool]]:
        return [(one.data_ptr(), one.requires_grad) for one in self._tensors]

    def _found(self) -> list[Any]:
        return list(chain.from_iterable(map(dict.values, self._members)))


def hooked(network: Module) -> bool:
    """True if a hook of a module or of torch runs at a call."""
    own = (getattr(module, name) for module in network.modules() for name in _HOOKS)
    return any(own) or _has_any_global_hook()
