"""A dataflow as plain data, and back: how decisions about dataflows are written to files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, fields, is_dataclass
from typing import Any

from pcnn.dataflows.base import Dataflow
from pcnn.dataflows.blocked import Blocked, SummedBlocks
from pcnn.dataflows.gather_scatter import GatherScatter
from pcnn.dataflows.grouping import Adaptive, Fixed, Separate, Sorted, Symmetric
from pcnn.dataflows.hybrid import Hybrid
from pcnn.dataflows.output_stationary import OutputStationary
from pcnn.dataflows.reference import Reference
from pcnn.dataflows.row_stationary import RowStationary
from pcnn.dataflows.triplets import Triplets
from pcnn.dataflows.weight_stationary import WeightStationary
from pcnn.kernels.gemm_blocks import GemmBlocks
from pcnn.kernels.product_tiles import ChunkTiles, RowTiles

_DATAFLOWS = (
    Blocked,
    GatherScatter,
    Hybrid,
    OutputStationary,
    Reference,
    RowStationary,
    SummedBlocks,
    Triplets,
    WeightStationary,
)
_SETTINGS = (Adaptive, ChunkTiles, Fixed, GemmBlocks, RowTiles, Separate, Sorted, Symmetric)

#: Every class that a file may name: dataflows, and the settings they hold.
CLASSES: dict[str, type] = {made.__name__: made for made in (*_DATAFLOWS, *_SETTINGS)}

#: Dataflows of older files: the one that took the place of a class, with its usual fields.
REPLACED = {"OuterByRow": ("OutputStationary", {"sections": None})}
#: Fields of older files that have gone; the dataflow computes the same without them.
RETIRED = {"GatherScatter": ("products", "weight_gradient")}

#: Fields that describe a dataflow; written only where they differ from the class's own.
DESCRIPTIONS = ("name", "needs", "needs_weight_grad", "fuses", "deterministic")


def settings_of(dataflow: Any) -> dict[str, Any]:
    """Class and fields of a dataflow, as `json` takes them."""
    kind: Any = type(dataflow)
    name = kind.__name__
    if CLASSES.get(name) is not kind:
        raise ValueError(f"{name} cannot be written to a file, which knows {', '.join(CLASSES)}")
    kept = [field for field in fields(dataflow) if field.init and not _is_usual(dataflow, field)]
    return {"name": name, "fields": {f.name: _plain(getattr(dataflow, f.name)) for f in kept}}


def dataflow_of(settings: Mapping[str, Any]) -> Dataflow:
    """The dataflow of what `settings_of` wrote."""
    made: Dataflow = _made(settings)
    return made


def is_writable(dataflow: Any) -> bool:
    """True if `settings_of` knows its class and those of its fields; a user's own are unknown."""
    try:
        settings_of(dataflow)
    except ValueError:
        return False
    return True


def described(dataflow: Any) -> str:
    """A dataflow in one short line: its class, and the settings that are not the usual ones."""
    if not is_dataclass(dataflow):
        return str(getattr(dataflow, "name", dataflow))
    kept = [f for f in fields(dataflow) if f.init and getattr(dataflow, f.name) != f.default]
    words = ", ".join(f"{field.name}={_word(getattr(dataflow, field.name))}" for field in kept)
    return f"{type(dataflow).__name__}({words})" if words else type(dataflow).__name__


def _is_usual(dataflow: Any, field: Field[Any]) -> bool:
    return field.name in DESCRIPTIONS and getattr(dataflow, field.name) == field.default


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return settings_of(value)
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ValueError(f"a setting of type {type(value).__name__} cannot be written: {value!r}")


def _made(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return tuple(_made(part) for part in value) if isinstance(value, list) else value
    written, given = str(value.get("name")), value.get("fields", {})
    name, usual = REPLACED.get(written, (written, {}))
    made = CLASSES.get(name)
    if made is None or not isinstance(given, Mapping):
        raise ValueError(f"no settings named {value.get('name')!r}; there are {', '.join(CLASSES)}")
    kept = {key: part for key, part in given.items() if key not in RETIRED.get(name, ())}
    try:
        return made(**{**usual, **{str(key): _made(part) for key, part in kept.items()}})
    except TypeError as error:
        raise ValueError(f"{value['name']}: {error}") from error


def _word(value: Any) -> str:
    return described(value) if hasattr(value, "needs") else str(getattr(value, "name", value))
