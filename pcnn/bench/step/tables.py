"""Steps of a training as tables for a person."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.table import Table

from pcnn.bench.report import table
from pcnn.bench.rows import Header, Row

#: Parts of a step by name, and what their tables are called.
PARTS = {
    "phase": "the device, by what it is for",
    "kernel": "the device, by kernel",
    "module": "the device, by module",
    "wait": "waits of the host",
    "function": "the host, by function: time in itself, operators and launches included",
}
#: Letters of a name.
WIDTH = 110


def tables(header: Header, rows: Sequence[Row]) -> Iterator[Table]:
    """The steps as a whole, then a table for each kind of part; numbers are those of a step."""
    yield table(header, [row for row in rows if row.what == "training"])
    for part, title in PARTS.items():
        own = [row.params or {} for row in rows if (row.params or {}).get("part") == part]
        if not own:
            continue
        drawn = Table(title=title)
        drawn.add_column("what")
        drawn.add_column("ms", justify="right")
        drawn.add_column("times", justify="right")
        for found in own:
            name, times = str(found["name"]), f"{found['count']:g}"
            drawn.add_row(name[:WIDTH], f"{found['ms']:.3f}", times)
        yield drawn
