"""Figures of the papers, their result file, and the charts made from it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar

from pcnn.bench.charts import PeerRows, View, charts
from pcnn.bench.render import render
from pcnn.bench.rows import Header, Row, left_out, read_rows, write_rows

#: Engine of the row that stands for cases that were left out as time was short.
REST = "rest"
#: The setting of a suite; every suite has its own.
S = TypeVar("S")


@dataclass(frozen=True)
class Figure(Generic[S]):
    """A figure of a paper, or a chart of our own.

    Args:
        name: of its rows and its file.
        shows: what it shows, for the title.
        data: what the paper measured on; other scenes stand in for it. Empty for our own charts.
        measure: its rows, from a setting; none where the device cannot serve it.
        views: what is drawn of its rows.
        needs: what must be there for it.
    """

    name: str
    shows: str
    data: str
    measure: Callable[[S, str], Iterator[Row]]
    views: Sequence[View] = ()
    needs: str = "a map builder"


def chosen_figures(names: Sequence[str], figures: Sequence[Figure[S]]) -> list[Figure[S]]:
    """Figures of these names, or of what stands behind the paper in a name: ``fig3``, ``layers``.

    Args:
        names: none, or ``all`` among them: all figures.
        figures: those of a suite.

    Raises:
        ValueError: no figure of that name.
    """
    if not names or "all" in names:
        return list(figures)
    known = {figure.name.partition("_")[2]: figure for figure in figures}
    known |= {figure.name: figure for figure in figures}
    unknown = [name for name in names if name not in known]
    if unknown:
        there = ", ".join(figure.name for figure in figures)
        raise ValueError(f"no figure {', '.join(unknown)}; there are {there}")
    return [known[name] for name in names]


def until(rows: Iterator[Row], seconds: float, figure: str) -> Iterator[Row]:
    """Rows of a figure; none begins after so many seconds, and a row `REST` then says so."""
    end = time.monotonic() + seconds
    for row in rows:
        yield row
        if time.monotonic() > end:
            rest = Row(row.what, row.workload, REST, figure=figure)
            yield left_out(rest, f"all after it: {seconds:g} s are over")
            return


def some(names: Sequence[str], most: int = 4) -> str:
    """Names in a line; of many the first and how many there are."""
    if len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(names[: most - 1])} and {len(names) - most + 1} more"


def stand_ins(rows: Sequence[Row], figures: Sequence[Figure[S]]) -> dict[str, str]:
    """By figure, what was measured in place of its data, for the header and the titles."""
    found = {}
    for figure in figures:
        if not figure.data:
            continue
        workloads = dict.fromkeys(row.workload for row in rows if row.figure == figure.name)
        if workloads:
            found[figure.name] = f"{some(list(workloads))}, in place of {figure.data}"
    return found


def merged(old: Sequence[Row], new: Sequence[Row]) -> list[Row]:
    """New rows, after those old ones that were not measured again.

    A row replaces one of the same figure, workload, engine, cache, dtype and network, and of a
    convolution of the same kernel size and channels.
    """
    again = {_place(row) for row in new}
    return [*(row for row in old if _place(row) not in again), *new]


def _place(row: Row) -> tuple[object, ...]:
    layer = (row.k, row.c_in, row.c_out) if row.c_in is not None else None
    cache = row.cache or "warm"  # a row without times has none
    return row.figure, row.workload, row.engine, cache, row.dtype, row.model, layer


def _same_machine(first: Header, second: Header) -> bool:
    return (first.device, first.torch, first.revision) == (
        second.device,
        second.torch,
        second.revision,
    )


def kept(path: Path, header: Header) -> list[Row]:
    """Rows that a result file holds already, if they are of the same device, torch and commit.

    Raises:
        ValueError: the file is no result file.
    """
    if not path.is_file():
        return []
    old, rows = read_rows(path)
    return rows if _same_machine(old, header) else []


def join(paths: Sequence[Path], out: Path, figures: Sequence[Figure[S]]) -> Path:
    """Join result files into one; of rows measured twice the later file's stay.

    Returns:
        ``out``.

    Raises:
        ValueError: no result file, or files of several devices, versions of torch, or commits.
    """
    header, rows = read_rows(paths[0])
    for path in paths[1:]:
        other, own = read_rows(path)
        if not _same_machine(header, other):
            raise ValueError(
                f"{path} is of {other.device}, torch {other.torch}, revision {other.revision}, but "
                f"{paths[0]} of {header.device}, torch {header.torch}, revision {header.revision}"
            )
        rows = merged(rows, own)
        header = replace(header, after=other.after)
    return write_rows(out, replace(header, stand_ins=stand_ins(rows, figures) or None), rows)


def draw(path: Path, figures: Sequence[Figure[S]], peers: PeerRows = ()) -> list[Path]:
    """Draw the charts of all figures in a result file, next to it.

    Args:
        path: the result file.
        figures: those that it may hold.
        peers: other engines' times, for the charts that show them.

    Raises:
        ValueError: the file is no result file.
    """
    header, rows = read_rows(path)
    drawn = []
    for figure in figures:
        own = [row for row in rows if row.figure == figure.name]
        for chart in charts(figure.views, own, peers):
            names = (path.stem, figure.name, chart.suffix)
            file = path.with_name("-".join(name for name in names if name) + ".png")
            drawn.append(render(chart, title_of(figure, header, own, chart.about), file))
    return drawn


def title_of(figure: Figure[S], header: Header, rows: Sequence[Row], about: str) -> str:
    """Title that names what is shown, the device, and what was measured in place of what."""
    caches = sorted({row.cache for row in rows if row.cache})
    what = (header.stand_ins or {}).get(figure.name)
    if what is None:
        what = some(list(dict.fromkeys(row.workload for row in rows)))
    lines = (
        f"{figure.name}: {figure.shows} ({about})",
        f"{header.device}, torch {header.torch}" + "".join(f", {cache} cache" for cache in caches),
        what,
    )
    return "\n".join(lines)
