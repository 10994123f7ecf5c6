"""Measured rows as a table for a person."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from pcnn.bench.rows import Header, Row, present

#: Key of the row format, title of the column.
TITLES = {
    "figure": "figure",
    "what": "what",
    "product": "product",
    "workload": "workload",
    "engine": "engine",
    "params": "settings",
    "model": "model",
    "dtype": "dtype",
    "n": "N",
    "triplets": "T",
    "k": "K",
    "stride": "stride",
    "c_in": "C_in",
    "c_out": "C_out",
    "gpu_ms": "GPU ms",
    "wall_ms": "wall ms",
    "host_ms": "host ms",
    "min_ms": "min",
    "p90_ms": "p90",
    "p95_ms": "p95",
    "p99_ms": "p99",
    "gpu_busy_ms": "busy ms",
    "floor_ms": "floor",
    "over_floor": "x floor",
    "memory_mb": "MB",
    "launches": "launches",
    "syncs": "syncs",
    "cache": "cache",
    "inputs": "inputs",
    "l2_hit_percent": "L2 hits %",
}


def table(header: Header, rows: Sequence[Row]) -> Table:
    """Table of the columns that differ; what all rows share stands in the caption."""
    records = [_with_ratio(present(row)) for row in rows]
    used = [key for key in TITLES if any(key in record for record in records)]
    shared = [key for key in used if key != "what" and _constant(key, records)]
    caption = ", ".join(f"{TITLES[key]} {_cell(records[0][key])}" for key in shared)
    drawn = Table(
        title=f"{header.device}, torch {header.torch}, {header.date}",
        caption=f"all rows: {caption}" if caption else None,
    )
    columns = [key for key in used if key not in shared]
    for key in columns:
        words = any(isinstance(record.get(key), str | dict) for record in records)
        drawn.add_column(TITLES[key], justify="left" if words else "right")
    for record in records:
        drawn.add_row(*(_cell(record.get(key)) for key in columns))
    return drawn


def _with_ratio(record: dict[str, object]) -> dict[str, object]:
    """Add how many times its floor a time is: on the GPU, or else from start to end."""
    times = (record.get(name) for name in ("gpu_ms", "wall_ms", "gpu_busy_ms"))
    time, floor = next(filter(None, times), None), record.get("floor_ms")
    if isinstance(time, float) and isinstance(floor, float) and floor > 0:
        record["over_floor"] = round(time / floor, 1)
    return record


def _constant(key: str, records: Sequence[dict[str, object]]) -> bool:
    return len(records) > 1 and len({_cell(record.get(key)) for record in records}) == 1


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, dict):
        return " ".join(f"{name}={_cell(setting)}" for name, setting in value.items())
    return f"{value:.3f}" if isinstance(value, float) else str(value)
