"""The suite's result file: which figures it holds, and the charts made from it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pcnn.bench.mapping.charts import render
from pcnn.bench.mapping.figures import FIGURES, Figure
from pcnn.bench.rows import Header, Row, read_rows
from pcnn.bench.scenes import Scene


def chosen_figures(names: Sequence[str]) -> list[Figure]:
    """Figures of these names, all if there is no name.

    Raises:
        ValueError: no figure of that name.
    """
    known = {figure.name: figure for figure in FIGURES}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"no figure {', '.join(unknown)}; there are {', '.join(known)}")
    return [known[name] for name in names] if names else list(FIGURES)


def stand_in(figure: Figure, scenes: Sequence[Scene]) -> str:
    """What was measured in place of a figure's data, for the header and the titles."""
    return f"{', '.join(scene.name for scene in scenes)}, in place of {figure.data}"


def kept(path: Path, header: Header, measured: Sequence[str]) -> tuple[dict[str, str], list[Row]]:
    """Stand-ins and rows of other figures that a result file holds already.

    They stay if they were measured on the same device with the same torch and commit.

    Args:
        path: the file; it need not be there.
        header: of the rows to be added.
        measured: names of the figures that were measured anew.

    Raises:
        ValueError: the file is no result file.
    """
    if not path.is_file():
        return {}, []
    old, rows = read_rows(path)
    same = all(
        getattr(old, name) == getattr(header, name) for name in ("device", "torch", "revision")
    )
    if not same:
        return {}, []
    others = {k: v for k, v in (old.stand_ins or {}).items() if k not in measured}
    return others, [row for row in rows if row.figure not in measured]


def draw(path: Path) -> list[Path]:
    """Draw the charts of all figures in a result file, next to it.

    Raises:
        ValueError: the file is no result file.
    """
    header, rows = read_rows(path)
    drawn = []
    for figure in FIGURES:
        own = [row for row in rows if row.figure == figure.name]
        for chart in figure.draw(own) if own else []:
            names = (path.stem, figure.name, chart.suffix)
            file = path.with_name("-".join(name for name in names if name) + ".png")
            drawn.append(render(chart, title_of(figure, header, own, chart.about), file))
    return drawn


def title_of(figure: Figure, header: Header, rows: Sequence[Row], about: str) -> str:
    """Title that names what is shown, the device, and what was measured in place of what."""
    caches = sorted({row.cache for row in rows if row.cache})
    what = (header.stand_ins or {}).get(figure.name)
    if what is None:
        what = ", ".join(dict.fromkeys(row.workload for row in rows))
    lines = (
        f"{figure.name}: {figure.shows} ({about})",
        f"{header.device}, torch {header.torch}" + "".join(f", {cache} cache" for cache in caches),
        what,
    )
    return "\n".join(lines)
