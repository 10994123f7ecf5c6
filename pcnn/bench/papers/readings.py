"""Figures in words, read off the rows of a result file: ratios, shares, means and counts."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from statistics import mean
from typing import Literal, Protocol

from pcnn.bench.rows import Row
from pcnn.plural import counted

#: Time in kernels, or from start to end.
Clock = Literal["device", "wall"]
Value = str | int | float
#: Values of columns or settings that a row must have.
Wanted = Mapping[str, Value]
Place = tuple[tuple[str, object], ...]

#: A paper says that one is ahead, and not by how much.
AHEAD = math.inf

#: Fields that are no part of a place: results, and settings that tell how a row was checked.
_COLUMNS = tuple(
    one.name
    for one in fields(Row)
    if one.name not in ("params", "figure", "run", "checked", "triplets", "floor_ms", "launches")
    and one.name not in ("syncs", "cache", "memory_mb", "l2_hit_percent", "inputs")
    and not one.name.endswith("_ms")
)
_NO_PLACE = ("checked_on", "left_out")


class Reading(Protocol):
    """A figure in words."""

    def of(self, rows: Sequence[Row]) -> str:
        """The words, of all rows of a figure in one dtype; empty where the rows do not tell."""


def value(row: Row, name: str) -> object:
    """A column or a setting of a row; ``None`` where it has neither."""
    return getattr(row, name) if name in _COLUMNS else (row.params or {}).get(name)


def chosen(rows: Iterable[Row], wanted: Wanted) -> Iterator[Row]:
    """Rows that have these values."""
    return (row for row in rows if all(value(row, name) == one for name, one in wanted.items()))


def place(row: Row, apart: Iterable[str]) -> Place:
    """All that decides what a row measured, without the names ``apart``."""
    said = {name: value(row, name) for name in _COLUMNS} | dict(row.params or {})
    out = {*apart, *_NO_PLACE}
    return tuple(sorted((name, one) for name, one in said.items() if name not in out))


def time_of(row: Row, clock: Clock) -> float | None:
    """Time of a row by a clock [ms]."""
    if clock == "wall":
        return row.wall_ms
    return row.gpu_busy_ms if row.gpu_ms is None else row.gpu_ms


@dataclass(frozen=True)
class Range:
    """Ratios at several places: their geometric mean, and the ends."""

    mean: float
    low: float
    high: float
    places: int

    @classmethod
    def of(cls, ratios: Sequence[float]) -> Range:
        """Summarise ratios above zero."""
        centre = math.exp(mean(map(math.log, ratios)))
        return cls(centre, min(ratios), max(ratios), len(ratios))

    def __str__(self) -> str:
        """As a page has it."""
        if self.places == 1:
            return f"{self.mean:.2f}×"
        return f"{self.mean:.2f}× ({self.low:.2f} to {self.high:.2f}, {self.places} places)"


@dataclass(frozen=True)
class Ratio:
    """Time of one thing over that of another wherever both were measured.

    Of several runs, and of several settings named in ``apart``, the quickest counts: engines take
    their best.

    Args:
        label: in words, as ``minuet / spira``.
        slow: values of the rows above the line.
        fast: values of those below it.
        printed: the paper's mean; `AHEAD`: one above 1 without a number; ``None``: none at all.
        where: values of all rows.
        apart: further settings that the two sides, or several rows of one, differ in.
        summed: a setting whose values add up at a place, as the parts of a call.
        clock: that is compared with the paper; ``None``: kernels where they are known.
    """

    label: str
    slow: Wanted
    fast: Wanted
    printed: float | None = None
    where: Wanted = field(default_factory=dict)
    apart: tuple[str, ...] = ()
    summed: str = ""
    clock: Clock | None = None

    def at(self, rows: Iterable[Row], clock: Clock) -> Range | None:
        """The ratios by a clock; ``None`` where no place has both."""
        kept = list(chosen(rows, self.where))
        slow, fast = (self._times(kept, wanted, clock) for wanted in (self.slow, self.fast))
        found = []
        for here, parts in slow.items():
            other = fast.get(here, {})
            above, below = sum(parts.values()), sum(other.values())
            if parts.keys() == other.keys() and above > 0 and below > 0:
                found.append(above / below)
        return Range.of(found) if found else None

    def _times(
        self, rows: Iterable[Row], wanted: Wanted, clock: Clock
    ) -> dict[Place, dict[object, float]]:
        """Smallest times by place, and there by part."""
        out = {*self.slow, *self.fast, *self.apart, *filter(None, (self.summed,))}
        found: dict[Place, dict[object, float]] = defaultdict(dict)
        for row in chosen(rows, wanted):
            spent = time_of(row, clock)
            if spent is not None:
                part, here = value(row, self.summed), found[place(row, out)]
                here[part] = min(spent, here.get(part, math.inf))
        return found

    def of(self, rows: Sequence[Row]) -> str:
        """See `Reading.of`."""
        words = {"device": "in kernels", "wall": "by the wall"}
        found = {name: self.at(rows, clock) for clock, name in words.items()}  # type: ignore[arg-type]
        said = [f"{name} {one}" for name, one in found.items() if one]
        return f"{self.label}: {', '.join(said)}" if said else ""

    def verdict(self, rows: Sequence[Row]) -> str:
        """Ours beside the paper's; empty without either."""
        clocks: tuple[Clock, ...] = (self.clock,) if self.clock else ("device", "wall")
        ours = next(filter(None, (self.at(rows, clock) for clock in clocks)), None)
        if ours is None or self.printed is None:
            return ""
        if (ours.mean > 1) != (self.printed > 1):
            return "reversed"
        if self.printed == AHEAD:
            return "agrees"
        share = math.log(ours.mean) / math.log(self.printed)
        return "less" if share < 0.5 else "more" if share > 2 else "agrees"


@dataclass(frozen=True)
class Share:
    """Shares of a whole time, part by part, mean over the places.

    Args:
        where: values of the rows.
        part: the setting that names parts.
        label: in words.
    """

    label: str
    where: Wanted
    part: str = "part"

    def of(self, rows: Sequence[Row]) -> str:
        """See `Reading.of`."""
        at: dict[Place, dict[str, float]] = defaultdict(dict)
        for row in chosen(rows, self.where):
            spent = time_of(row, "device")
            if spent is not None:
                at[place(row, [self.part])][str(value(row, self.part))] = spent
        shares: dict[str, list[float]] = defaultdict(list)
        for parts in at.values():
            whole = sum(parts.values())
            for name, spent in parts.items():
                shares[name].append(100 * spent / whole if whole else 0.0)
        said = [f"{name} {mean(found):.0f} %" for name, found in shares.items()]
        return f"{self.label}: {', '.join(said)}" if said else ""


@dataclass(frozen=True)
class Mean:
    """A column or a setting, mean and ends over rows.

    Args:
        label: in words.
        name: the column or setting; ``memory_mb`` and ``l2_hit_percent`` too.
        where: values of the rows.
        unit: stands behind the numbers.
        digits: behind the point.
        largest: the largest value alone.
    """

    label: str
    name: str
    where: Wanted = field(default_factory=dict)
    unit: str = ""
    digits: int = 0
    largest: bool = False

    def of(self, rows: Sequence[Row]) -> str:
        """See `Reading.of`."""
        found = []
        for row in chosen(rows, self.where):
            one = getattr(row, self.name, None)
            one = value(row, self.name) if one is None else one
            if isinstance(one, int | float):
                found.append(float(one))
        if not found:
            return ""
        low, centre, high = (
            f"{one:.{self.digits}f}" for one in (min(found), mean(found), max(found))
        )
        unit = f" {self.unit}" if self.unit else ""
        if self.largest or low == high:
            return f"{self.label}: {high}{unit}"
        return f"{self.label}: {centre}{unit} ({low} to {high})"


@dataclass(frozen=True)
class Best:
    """The setting that is quickest at most places.

    Args:
        label: in words.
        name: settings, with blanks between them.
        where: values of the rows.
    """

    label: str
    name: str
    where: Wanted = field(default_factory=dict)

    def of(self, rows: Sequence[Row]) -> str:
        """See `Reading.of`."""
        names = self.name.split()
        at: dict[Place, list[tuple[float, str]]] = defaultdict(list)
        for row in chosen(rows, self.where):
            spent = time_of(row, "device") or time_of(row, "wall")
            if spent is not None:
                said = ", ".join(f"{value(row, name)}" for name in names)
                at[place(row, names)].append((spent, said))
        wins: dict[str, int] = defaultdict(int)
        for found in at.values():
            wins[min(found)[1]] += 1
        ranked = sorted(wins.items(), key=lambda one: -one[1])
        first = [f"{name} at {counted(number, 'place')}" for name, number in ranked[:4]]
        more = len(ranked) - len(first)
        if more > 0:
            first.append(f"{more} others")
        return f"{self.label}: {', '.join(first)}" if first else ""


@dataclass(frozen=True)
class Counts:
    """Numbers of layers by a setting, network by network, scene by scene.

    Args:
        name: the setting.
        number: the setting that holds the number.
        where: values of the rows.
    """

    name: str
    number: str
    where: Wanted = field(default_factory=dict)

    def of(self, rows: Sequence[Row]) -> str:
        """See `Reading.of`."""
        by: dict[str, list[str]] = defaultdict(list)
        for row in chosen(rows, self.where):
            title = " on ".join(filter(None, (row.model, row.workload)))
            by[title].append(f"{value(row, self.name)} {value(row, self.number)}")
        return "; ".join(f"{title}: {', '.join(said)}" for title, said in by.items())
