"""Check the values of a configuration against the signatures they are meant for."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from importlib.util import find_spec
from pkgutil import resolve_name
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Interval, Len, MinLen

from pcnn.experiment.errors import ConfigError, listed, nearest
from pcnn.experiment.targets import OF_NODE, Target
from pcnn.extras import install
from pcnn.hints import accepts, hints_of, named, shown
from pcnn.ranges import ArgumentsOf, Count, Natural, NonNegative, PartialShare, Positive


def check_arguments(
    resolved: Mapping[str, Any], written: Mapping[str, Any], where: str, given: frozenset[str]
) -> None:
    """Check one `_target_` node and all nodes inside it.

    Args:
        resolved: the node with interpolations resolved, its targets looked up
            (`pcnn.experiment.targets.verified`).
        written: the same node as written, so that a message names the key the user set.
        where: dotted name of the node.
        given: names that the program passes itself.

    Raises:
        ConfigError: an argument is unknown, of the wrong type, or out of range.
    """
    target: Target = resolved["_target_"]
    absent = missing_package(target.name)
    if absent is not None:
        raise ConfigError(f"{where} {absent}")
    parameters, hints = signature(target.call)
    values = {name: value for name, value in resolved.items() if name not in OF_NODE}
    hints = {**hints, **library_hints(target.name)}
    check_values(values, written, where, given, parameters, hints)
    if resolved.get("_partial_"):  # its caller passes the rest
        return
    lacking = [
        name
        for name, parameter in parameters.items()
        if parameter.default is inspect.Parameter.empty
        and parameter.kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        and name not in {"self", *given, *values}
    ]
    if lacking:
        raise ConfigError(f"{where} lacks {listed(lacking)}, which {target} needs a value of")


def check_values(
    values: Mapping[str, Any],
    written: Mapping[str, Any],
    where: str,
    given: frozenset[str],
    parameters: Mapping[str, inspect.Parameter],
    hints: Mapping[str, Any],
) -> None:
    """Check arguments of one function; those above, and its parameters and hints."""
    open_ended = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
    for name, value in values.items():
        key = origin_of(written.get(name), f"{where}.{name}")
        if name not in parameters and not open_ended:
            names = [name for name in parameters if name not in given and name != "self"]
            raise ConfigError(
                f"{key} does not exist.{nearest(name, names)}\nkeys of {where}: {listed(names)}"
            )
        inner = written.get(name)
        if isinstance(value, Mapping) and "_target_" in value:
            check_arguments(value, inner if isinstance(inner, Mapping) else value, key, given)
            continue
        for number, node in nodes_in(value):
            check_arguments(node, node, f"{key}.{number}", given)
        hint = hints.get(name, Any)
        if not accepts(value, hint) and (
            value is not None or name not in parameters or parameters[name].default is not None
        ):
            raise invalid(key, value, hint)
        function = arguments_of(hint)
        if function is not None and isinstance(value, Mapping):
            check_values(value, {}, key, frozenset(), *signature(function))


def invalid(key: str, value: Any, hint: Any) -> ConfigError:
    """The message for a value that its type does not accept."""
    return ConfigError(f"{key}={shown(value)} is not valid.\npossible: {named(hint)}")


def nodes_in(value: Any) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The nodes in a list, numbered."""
    for number, one in enumerate(value if isinstance(value, list) else ()):
        if isinstance(one, Mapping) and "_target_" in one:
            yield number, one


def arguments_of(hint: Any) -> Callable[..., Any] | None:
    """The function whose arguments a mapping of this type holds."""
    if get_origin(hint) is Annotated:
        for one in get_args(hint)[1:]:
            if isinstance(one, ArgumentsOf):
                return resolve_name(one.function)  # type: ignore[no-any-return]
    if get_origin(hint) in (Union, types.UnionType):
        return next(filter(None, map(arguments_of, get_args(hint))), None)
    return None


def signature(target: Callable[..., Any]) -> tuple[Mapping[str, inspect.Parameter], dict[str, Any]]:
    """Parameters of a function or constructor, and those of its type hints that can be resolved."""
    function = target.__init__ if inspect.isclass(target) else target  # type: ignore[misc]
    function = inspect.unwrap(function)
    return inspect.signature(function).parameters, hints_of(function)


def origin_of(written: object, key: str) -> str:
    """The key an interpolation points to, else `key`."""
    match = re.fullmatch(r"\$\{([\w.]+)\}", written) if isinstance(written, str) else None
    return match.group(1) if match else key


_Devices = Annotated[int, Interval(ge=1, le=4096)]
_Part = Count | Annotated[float, Interval(gt=0, le=1)]  # so many batches, or a share of them

TRAINER: Mapping[str, Any] = {
    "devices": Literal[-1, "auto"] | _Devices | Annotated[list[Natural], MinLen(1)],
    "num_nodes": _Devices,
    "max_steps": Literal[-1] | Count,
    "min_steps": Count | None,
    "max_epochs": Literal[-1] | Count | None,
    "min_epochs": Count | None,
    "max_time": str | None,
    "limit_train_batches": _Part | None,
    "limit_val_batches": _Part | Literal[0] | None,
    "limit_test_batches": _Part | None,
    "limit_predict_batches": _Part | None,
    "overfit_batches": Natural | Annotated[float, Interval(ge=0, le=1)],
    "val_check_interval": _Part | str | timedelta | None,
    "check_val_every_n_epoch": Count | None,
    "num_sanity_val_steps": Literal[-1] | Natural | None,
    "log_every_n_steps": Count | None,
    "gradient_clip_val": NonNegative | None,
    "accumulate_grad_batches": Count,
    "reload_dataloaders_every_n_epochs": Natural,
}

OPTIMIZER: Mapping[str, Any] = {
    "lr": Positive,
    "weight_decay": NonNegative,
    "momentum": PartialShare,
    "dampening": Annotated[float, Interval(ge=0, le=1)],
    "eps": NonNegative,
    "betas": Annotated[list[PartialShare], Len(2, 2)],
    "alpha": Annotated[float, Interval(ge=0, le=1)],
}

LOGGER: Mapping[str, Any] = {"flush_logs_every_n_steps": Count, "max_queue": Count}


#: Package that a class needs and does not import at first, and the extra that brings it, if any.
PACKAGES: Mapping[str, tuple[str, str | None]] = {
    "lightning.pytorch.loggers.TensorBoardLogger": ("tensorboard", "tensorboard"),
    "pcnn.registration.fpfh.FPFH": ("open3d", None),
}


def missing_package(target: str) -> str | None:
    """The command that installs the package a class needs; None where it is installed."""
    package, extra = PACKAGES.get(target, (None, ""))
    if package is None or find_spec(package) is not None:
        return None
    command = install(extra) if extra else f"pip install {package}"
    return f"needs the package {package}, which is not installed.\npossible: {command}"


def library_hints(target: str) -> Mapping[str, Any]:
    """Types, with ranges, of arguments of a library's class; by the argument's name."""
    if target in ("lightning.Trainer", "lightning.pytorch.Trainer"):
        return TRAINER
    if target.startswith("torch.optim."):
        return OPTIMIZER
    if target.startswith("lightning.pytorch.loggers."):
        return LOGGER
    return {}
