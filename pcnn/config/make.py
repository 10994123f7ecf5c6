"""Objects of a configuration: listed classes with checked, plain arguments; nothing else runs."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from types import FunctionType
from typing import Any, Literal

from pcnn.config.values import hints_of, refusal
from pcnn.errors import ConfigError, first_line
from pcnn.ranges import Count, NonNegative

_DATA = ("pcnn.datasets", "pcnn.datasets.transforms", "pcnn.datasets.registration")
_SENSORS = "pcnn.datasets.registration.sensors"
#: By the group of the configuration: modules whose public classes may stand in it.
MODULES: Mapping[str, tuple[str, ...]] = {
    "model": ("pcnn.models", "pcnn.registration.fpfh"),
    "geometry": _DATA[:1],
    "dataset": ("pcnn.datamodules", *_DATA),
    "augment": (*_DATA, _SENSORS),
    "task": (
        *("pcnn.tasks", "pcnn.tasks.schedules", "pcnn.losses"),
        *("torch.nn", "torch.optim", "torch.optim.lr_scheduler"),
    ),
    "tta": ("pcnn.tasks",),
    "trainer": (
        *("lightning", "lightning.pytorch.strategies", "lightning.pytorch.profilers"),
        *("lightning.pytorch.plugins", "lightning.fabric.plugins"),
    ),
    "callbacks": ("pcnn.callbacks", "lightning.pytorch.callbacks"),
    "logger": ("pcnn.loggers", "lightning.pytorch.loggers"),
}
#: Functions that make an object as a class does.
FUNCTIONS: Mapping[str, tuple[str, ...]] = {
    "pcnn.models": ("MinkUNet42", "SparseResNet21", "SparseResNetLarge"),
    "pcnn.tasks.schedules": (
        *("constant", "cosine", "exponential", "multi_step", "one_cycle", "poly"),
    ),
}
#: Ranges of arguments of the trainer that Lightning takes, and fails on later.
_TRAINER: Mapping[str, Any] = {
    "max_steps": Literal[-1] | Count,
    "max_epochs": Literal[-1] | Count | None,
    "check_val_every_n_epoch": Count | None,
    "accumulate_grad_batches": Count,
    "gradient_clip_val": NonNegative | None,
}
_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", re.ASCII)
_OF_NODE = ("_target_", "_partial_")
#: Stands for an object that is made later.
_LATER = object()


def make(node: Any, where: str, allow: Sequence[str] = (), build: bool = True, **given: Any) -> Any:
    """The object of a node, and of the nodes in its arguments."""
    if not isinstance(node, Mapping) or "_target_" not in node:
        raise ConfigError(where, "keys with a _target_ are needed")
    target = looked_up(node["_target_"], where, allow)
    bound = bool(node.get("_partial_", False))
    arguments = {}
    for key, value in node.items():
        if key in _OF_NODE:
            continue
        if str(key).startswith("_"):
            raise ConfigError(f"{where}.{key}", "arguments go by their names")
        arguments[str(key)] = _inner(value, f"{where}.{key}", allow, build, given)
    parameters = parameters_of(target)
    # a partial is called by another object, which passes what it wants
    asked = {} if bound else {name: given[name] for name in given if name in parameters}
    check(target, arguments, where, asked, bound or not build)
    if not build:
        return _LATER
    call = partial(target, **{**asked, **arguments})
    if bound:
        return call
    with named_after(where, arguments):
        try:
            return call()
        except TypeError as error:  # of our own code it is a defect
            if str(target.__module__).startswith("pcnn."):
                raise
            raise ConfigError(where, first_line(error)) from error


def _inner(value: Any, where: str, allow: Sequence[str], build: bool, given: Any) -> Any:
    if isinstance(value, Mapping):
        if any(str(key).startswith("_") for key in value):
            return make(value, where, allow, build, **given)
        return {k: _inner(v, f"{where}.{k}", allow, build, given) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_inner(v, f"{where}.{at}", allow, build, given) for at, v in enumerate(value)]
    return value


def looked_up(name: Any, where: str, allow: Sequence[str] = ()) -> Callable[..., Any]:
    """The class or function of a dotted name, if it may stand in the group of `where`."""
    key = where if where.endswith("_target_") else f"{where}._target_"
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError(key, f"{str(name)[:80]!r} is no dotted name of a class")
    module, _, last = name.rpartition(".")
    own = any(name.startswith(f"{package}.") for package in allow)
    refused = ConfigError(
        key, f"{name[:80]} may not stand here; of packages that you trust: allow_targets=[PACKAGE]"
    )
    if not own and module not in MODULES.get(where.partition(".")[0], ()):
        raise refused
    try:
        found = getattr(import_module(module), last)
    except (ImportError, AttributeError) as error:
        raise ConfigError(key, first_line(error)) from error
    home = str(getattr(found, "__module__", ""))
    if own:  # what their modules import from elsewhere is not theirs
        fits = any(f"{home}.".startswith(f"{package}.") for package in allow)
        fits = fits and isinstance(found, type | FunctionType)
    elif isinstance(found, type):
        public = getattr(import_module(module), "__all__", None)
        fits = last in public if public is not None else home.startswith(module)
    else:
        fits = last in FUNCTIONS.get(module, ())
    if not fits:
        raise refused
    return found  # type: ignore[no-any-return]


def check(
    target: Callable[..., Any],
    arguments: Mapping[str, Any],
    where: str,
    given: Any = (),
    partly: bool = False,  # others come later
) -> None:
    """Check arguments against a signature, and plain values against its types."""
    parameters = parameters_of(target)
    kinds = {one.kind for one in parameters.values()}
    for name in arguments:
        if name not in parameters and inspect.Parameter.VAR_KEYWORD not in kinds:
            names = ", ".join(one for one in parameters if one not in given)
            raise ConfigError(f"{where}.{name}", f"no such key; possible: {names}")
    for name, one in () if partly else parameters.items():
        free = one.default is not one.empty or one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
        if not free and name not in arguments and name not in given:
            raise ConfigError(f"{where}.{name}", "needs a value")
    own = _TRAINER if target.__module__.startswith("lightning.pytorch.trainer") else {}
    hints = {**hints_of(target), **own}
    for name, value in arguments.items():
        if name not in hints or _has_later(value):
            continue
        if value is None and parameters.get(name) and parameters[name].default is None:
            continue
        rule = refusal(value, hints[name])
        if rule is not None:
            raise ConfigError(f"{where}.{name}", f"{str(value)[:80]} is not valid: {rule}")


def parameters_of(target: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """Parameters of a function, or of a class's constructor."""
    return inspect.signature(target).parameters


@contextmanager
def named_after(where: str, arguments: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Turn the refusal of a value by a constructor into a ConfigError with its key."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        refusals = (ValueError, ImportError)
        if not isinstance(error, refusals) and type(error).__name__ != "MisconfigurationException":
            raise
        text = " ".join(str(error).split()) or type(error).__name__
        named = [one for one in arguments or () if re.search(rf"\b{re.escape(one)}\b", text)]
        key = f"{where}.{named[0]}" if len(named) == 1 else where
        raise ConfigError(key, text[:500]) from error


def check_allowed(packages: Sequence[str], overrides: Sequence[str]) -> None:
    """Check that packages are names, and were named on the command line, not by a file."""
    given = any(text.lstrip("+").startswith("allow_targets=") for text in overrides)
    if packages and not given:
        raise ConfigError("allow_targets", "comes from the command line alone, not from a file")
    for package in packages:
        if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", package, re.ASCII):
            raise ConfigError("allow_targets", f"{package!r} is no name of a package")


def _has_later(value: Any) -> bool:
    parts = value.values() if isinstance(value, Mapping) else value
    inner = isinstance(value, Mapping | list | tuple) and any(map(_has_later, parts))
    return value is _LATER or inner
