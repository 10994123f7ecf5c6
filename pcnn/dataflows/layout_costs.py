"""What it takes to make layouts of a kernel map, by how large the map is.

Kept beside the decisions about dataflows (`pcnn.dataflows.tuning_table`): a choice that was made
with the time of its layouts is made again without measuring it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

#: Names of layouts.
Names = tuple[str, ...]


@dataclass(frozen=True, order=True)
class MapSize:
    """What must be equal for a time to hold.

    Args:
        device: name and architecture.
        triton: version of Triton; ``none`` without it.
        side: ``forward`` or ``transposed``, as layers read the map, or ``symmetric``.
        written: the layout that its builder wrote.
        volume: kernel slots K.
        log2_rows: of its output rows, to whole octaves.
        log2_pairs: of the mean number of triplets of such a row, to half octaves.
    """

    device: str
    triton: str
    side: str
    written: str
    volume: int
    log2_rows: int
    log2_pairs: float


class LayoutCosts:
    """Times of making layouts from what a builder wrote [ms].

    Args:
        rows: the times; of equal keys the last counts.
    """

    def __init__(self, rows: Iterable[tuple[MapSize, Names, float]] = ()) -> None:
        self._ms = {(size, names): ms for size, names, ms in rows}

    def __len__(self) -> int:
        """Number of times."""
        return len(self._ms)

    def __iter__(self) -> Iterator[tuple[MapSize, Names, float]]:
        """Times in the order of their keys."""
        for (size, names), ms in sorted(self._ms.items()):
            yield size, names, ms

    def get(self, size: MapSize, names: Names) -> float | None:
        """The time for layouts of a map [ms], ``None`` if nobody has measured it."""
        return self._ms.get((size, names))

    def plain(self) -> list[dict[str, Any]]:
        """The times as `json` takes them."""
        return [{**asdict(size), "names": list(names), "ms": ms} for size, names, ms in self]

    @classmethod
    def of_plain(cls, content: Any) -> LayoutCosts:
        """The times of what `plain` gave.

        Raises:
            ValueError: something that is no list of times.
        """
        if not isinstance(content, list):
            raise ValueError(f"{content!r} is no list of times of layouts")
        return cls(_read(row) for row in content)


def _read(row: Any) -> tuple[MapSize, Names, float]:
    values: list[Any] = []
    if isinstance(row, Mapping):
        values = [row.get(field.name) for field in fields(MapSize)]
    words, numbers = values[:4], values[4:]
    if not (
        values
        and all(isinstance(word, str) for word in words)
        and all(isinstance(number, int | float) for number in [*numbers, row.get("ms")])
        and isinstance(row.get("names"), list)
        and all(isinstance(name, str) for name in row["names"])
    ):
        raise ValueError(f"{row!r} is no time of layouts")
    return MapSize(*values), tuple(row["names"]), float(row["ms"])
