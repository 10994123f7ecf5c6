"""Snapshots of tensors, which tell if a value computed from them is still valid."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from operator import attrgetter, is_

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


_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_VERSION: Callable[[Tensor], int] = attrgetter("_version")
_LEARNS: Callable[[Tensor], bool] = attrgetter("requires_grad")


class NetworkSnapshot:
    """The modules of a network as they were, with all attributes of every one of them.

    It sees what a `Snapshot` sees of parameters and buffers, hooks, modes, and whatever else was
    exchanged, added or removed; not what changes inside of an attribute. Without ``values`` it sees
    of tensors where they lie and whether they learn, as steps change what they hold.
    """

    def __init__(self, network: Module, values: bool = True) -> None:
        # dictionaries that modules keep for life, compared in C: this runs at every call
        own = [module.__dict__ for module in network.modules()]
        members = [*own, *(one[name] for one in own for name in ("_modules", *_HOOKS))]
        tensors = [one[name] for one in own for name in ("_parameters", "_buffers")]
        self._empty = [one for one in (*members, *tensors) if not one]
        self._members = [one for one in members if one]
        self._copies = [dict(one) for one in self._members]
        self._with_tensors = [one for one in tensors if one]
        self._kept = self._found()
        self._tensors = [one for one in self._kept if one is not None]
        self._memory = [one.detach() for one in self._tensors]  # nothing else comes to lie there
        self._state = _VERSION if values else _LEARNS
        self._addresses, self._states = self._looks()

    def holds(self) -> bool:
        """True if the network is as it was."""
        try:
            if any(self._empty) or self._members != self._copies:
                return False
        except (RuntimeError, ValueError, TypeError):  # tensors and arrays that were exchanged
            return False
        found = self._found()
        if len(found) != len(self._kept) or not all(map(is_, found, self._kept)):
            return False
        return self._looks() == (self._addresses, self._states)

    def _found(self) -> list[Tensor | None]:
        return list(chain.from_iterable(map(dict.values, self._with_tensors)))

    def _looks(self) -> tuple[list[int], list[int]]:
        own = self._tensors
        return list(map(Tensor.data_ptr, own)), list(map(self._state, own))


def hooked(network: Module) -> bool:
    """True if a hook of a module or of torch runs at a call."""
    own = (getattr(module, name) for module in network.modules() for name in _HOOKS)
    return any(own) or _has_any_global_hook()
