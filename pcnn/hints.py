"""Type hints and the ranges in them (`pcnn.ranges`): which plain values they accept, in words."""

from __future__ import annotations

import inspect
import math
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from annotated_types import Ge, Gt, Interval, Le, Len, Lt, MinLen

PLAIN = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    type(None): "null",
}
SEQUENCES = (list, tuple, Sequence, Iterable, Collection)


def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Type hints of a function with their ranges, less those that only a type checker resolves."""
    try:
        return get_type_hints(function, include_extras=True)
    except (NameError, TypeError):  # one of them cannot be resolved: each by itself
        found: dict[str, Any] = {}
        for name, hint in getattr(function, "__annotations__", {}).items():
            one = type("one", (), {"__annotations__": {name: hint}})
            try:
                names = getattr(function, "__globals__", {})
                found |= get_type_hints(one, names, include_extras=True)
            except (NameError, TypeError):
                continue
        return found


def accepts(value: Any, hint: Any) -> bool:
    """True where a plain YAML value may be passed where `hint` is asked for; numbers are finite."""
    kind = get_origin(hint) or hint
    inner = get_args(hint)
    if kind is Annotated:
        return accepts(value, inner[0]) and all(within(value, limit) for limit in inner[1:])
    if hint in (Any, inspect.Parameter.empty):
        return True
    if isinstance(value, Mapping) and kind not in (Union, types.UnionType):
        # one with a _target_ may become any object
        return kind in (Mapping, dict) or ("_target_" in value and not is_plain(kind))
    if kind in (Union, types.UnionType):
        return any(accepts(value, one) for one in inner)
    if kind is Literal:
        return any(value == one and type(value) is type(one) for one in inner)
    if kind in (bool, str) or hint is type(None):
        return isinstance(value, kind)
    if kind in (int, float):
        return isinstance(value, (int, kind)) and type(value) is not bool and math.isfinite(value)
    if not isinstance(value, (list, tuple)):
        return path_like(value, kind)
    if kind not in SEQUENCES:
        return False
    if kind is tuple and inner and inner[-1] is not Ellipsis:
        return len(value) == len(inner) and all(map(accepts, value, inner))
    return all(accepts(one, inner[0]) for one in value) if inner else True


def check_fields(owner: Any) -> None:
    """Refuse numbers and words in the fields of a dataclass that their types do not accept.

    Raises:
        ValueError: names the field and its range.
    """
    for name, hint in hints_of(type(owner)).items():
        value = getattr(owner, name, None)
        if _is_value(value) and not accepts(value, hint):
            raise ValueError(f"{name} must be {named(hint)}, got {shown(value)}")


def _is_value(value: Any) -> bool:
    """True for a number, text, or a sequence of these; objects are checked elsewhere."""
    if isinstance(value, (list, tuple)):
        return all(map(_is_value, value))
    return isinstance(value, (bool, int, float, str))


def is_plain(kind: Any) -> bool:
    """True for the type of plain values, which no object stands for."""
    return kind in PLAIN or kind in SEQUENCES or kind is Literal


def within(value: Any, limit: Any) -> bool:
    """True where a value keeps to one limit of `annotated_types`; null has none."""
    if value is None or isinstance(value, str):
        return True
    if isinstance(limit, (MinLen, Len)):
        most = getattr(limit, "max_length", None)
        return len(value) >= limit.min_length and (most is None or len(value) <= most)
    ge, gt, le, lt = bounds(limit)
    return (
        (ge is None or value >= ge)
        and (gt is None or value > gt)
        and (le is None or value <= le)
        and (lt is None or value < lt)
    )


def bounds(limit: Any) -> tuple[Any, Any, Any, Any]:
    """(ge, gt, le, lt) of a limit, None for those that it leaves open."""
    named_bounds = ("ge", "gt", "le", "lt")
    if isinstance(limit, (Ge, Gt, Le, Lt, Interval)):
        ge, gt, le, lt = (getattr(limit, name, None) for name in named_bounds)
        return ge, gt, le, lt
    return None, None, None, None


def path_like(value: Any, kind: Any) -> bool:
    """Text stands for a path, and for nothing else that is not plain."""
    return isinstance(value, str) and inspect.isclass(kind) and hasattr(kind, "__fspath__")


def named(hint: Any) -> str:
    """A type hint in words, its range included."""
    kind = get_origin(hint) or hint
    inner = get_args(hint)
    if kind is Annotated:
        return " ".join([named(inner[0]), *filter(None, map(limited, inner[1:]))])
    if kind in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(named(one) for one in inner))
    if kind is Literal:
        return ", ".join(map(str, inner))
    if hint in PLAIN:
        return PLAIN[hint]
    if kind in SEQUENCES:
        return f"[{', '.join('...' if one is Ellipsis else named(one) for one in inner)}]"
    if kind is Mapping or kind is dict:
        return "keys with values"
    if inspect.isclass(kind) or kind is Callable or hint is Callable:
        return "a group of keys with a _target_"
    return getattr(hint, "__name__", str(hint))


def limited(limit: Any) -> str:
    """A limit in words: 'from 0 to 1'."""
    if isinstance(limit, (MinLen, Len)):
        most = getattr(limit, "max_length", None)
        least = limit.min_length
        return f"of {least} values" if most == least else f"with {least} or more values"
    ge, gt, le, lt = (None if one is None else f"{one:,.10g}" for one in bounds(limit))
    low = "" if ge is None and gt is None else f"from {ge}" if gt is None else f"above {gt}"
    high = "" if le is None and lt is None else f"up to {le}" if lt is None else f"below {lt}"
    if ge is not None and not high:
        return f"of {ge} or more"
    if low and le is not None and ge is not None:
        return f"from {ge} to {le}"
    return f"{low} and {high}" if low and high else low or high


def shown(value: Any) -> str:
    """A value as it would be typed."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, (list, tuple)):
        return f"[{','.join(map(shown, value))}]"
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{name}:{shown(one)}' for name, one in value.items())}}}"
    return str(value)
