"""Quickest dataflows, by product and size.

A decision holds for one device, dtype, kernel and number of channels. Rows and density vary from
cloud to cloud, so they are buckets, and a lookup takes the decision of the nearest one. Beside the
decisions stand the times of making layouts: a choice that was made with them is made again without
measuring them again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from pcnn.dataflows.base import Dataflow
from pcnn.dataflows.settings import dataflow_of, settings_of

#: Raised when decisions of older files no longer hold: fields of a row, or kernels behind a name.
FORMAT = 1

#: A decision holds for sizes within so many octaves of its own.
REACH = 4.0

#: Names of layouts.
Names = tuple[str, ...]


@dataclass(frozen=True, order=True)
class Signature:
    """The key of a decision: it holds where all of these are equal."""

    device: str  # name and architecture
    triton: str  # version of Triton, major and minor; none without it
    dtype: str  # that operands are rounded to, as float16
    c_in: int  # input channels of the layer, whatever the product
    c_out: int  # output channels of the layer
    groups: int  # groups of channels
    volume: int  # kernel slots K
    product: str  # one of pcnn.dataflows.products.PRODUCTS


@dataclass(frozen=True, order=True)
class Bucket:
    """How large a product is."""

    log2_rows: int  # of the rows of its output side, to whole octaves
    log2_pairs: float  # of the mean number of triplets of such a row, to half octaves

    @classmethod
    def of(cls, rows: float, pairs_per_row: float) -> Bucket:
        """The bucket of a number of rows and a mean number of triplets of each."""
        pairs = round(2 * math.log2(max(pairs_per_row, 2**-8))) / 2
        return cls(round(math.log2(max(rows, 1))), pairs)


@dataclass(frozen=True)
class Choice:
    """A dataflow and what it took."""

    dataflow: Dataflow  # the quickest of those that read the same layouts
    ms: float  # its time, mean of the samples [ms]

    def layouts(self, product: str) -> tuple[str, ...]:
        """The layouts it reads for a product."""
        return self.dataflow.needs_weight_grad if product == "vvor" else self.dataflow.needs


#: Decisions about one size, quickest first.
Choices = tuple[Choice, ...]


@dataclass(frozen=True, order=True)
class MapSize:
    """The key of a time: it holds where all of these are equal."""

    device: str  # name and architecture
    triton: str  # version of Triton; none without it
    side: str  # forward or transposed, as layers read the map, or symmetric
    written: str  # the layout that its builder wrote
    volume: int  # kernel slots K
    log2_rows: int  # of its output rows, to whole octaves
    log2_pairs: float  # of the mean number of triplets of such a row, to half octaves


class LayoutCosts:
    """Times of making layouts from what a builder wrote [ms]."""

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
        """The time for layouts of a map [ms], ``None`` if it was not measured."""
        return self._ms.get((size, names))

    def plain(self) -> list[dict[str, Any]]:
        """The times as `json` takes them."""
        return [{**asdict(size), "names": list(names), "ms": ms} for size, names, ms in self]

    @classmethod
    def of_plain(cls, content: Any) -> LayoutCosts:
        """The times of what `plain` gave."""
        if not isinstance(content, list):
            raise ValueError(f"{content!r} is no list of times of layouts")
        return cls(_read_cost(row) for row in content)


class TuningTable:
    """Decisions by signature and bucket."""

    def __init__(
        self,
        rows: Iterable[tuple[Signature, Bucket, Choices]] = (),
        costs: LayoutCosts | None = None,
    ) -> None:
        self.costs = costs or LayoutCosts()
        self._rows: dict[Signature, dict[Bucket, Choices]] = {}
        for signature, bucket, choices in rows:
            self._rows.setdefault(signature, {})[bucket] = choices

    def __len__(self) -> int:
        """Number of decisions."""
        return sum(map(len, self._rows.values()))

    def __iter__(self) -> Iterator[tuple[Signature, Bucket, Choices]]:
        """Decisions in the order of their keys."""
        for signature, sizes in sorted(self._rows.items()):
            for bucket, choices in sorted(sizes.items()):
                yield signature, bucket, choices

    def exact(self, signature: Signature, bucket: Bucket) -> Choices:
        """The decision about this very bucket, empty if there is none."""
        return self._rows.get(signature, {}).get(bucket, ())

    def nearest(
        self, signature: Signature, rows: int, layouts: tuple[str, ...]
    ) -> tuple[float, Dataflow] | None:
        """The decision about the nearest size within `REACH`.

        The density of the map is not known here, so it is not compared.
        """
        sizes = self._rows.get(signature, {})
        for bucket in sorted(sizes, key=lambda one: (abs(one.log2_rows - rows), one)):
            distance = abs(bucket.log2_rows - rows)
            if distance > REACH:
                return None
            for choice in sizes[bucket]:
                if choice.layouts(signature.product) == layouts:
                    return distance, choice.dataflow
        return None

    def updated(self, newer: TuningTable) -> TuningTable:
        """This table with the rows of a newer one, which count where both have one."""
        return TuningTable([*self, *newer], LayoutCosts([*self.costs, *newer.costs]))

    def plain(self) -> dict[str, Any]:
        """The table as `json` takes it."""
        rows = [
            {**asdict(signature), **asdict(bucket), "choices": [_written(one) for one in choices]}
            for signature, bucket, choices in self
        ]
        return {"format": FORMAT, "rows": rows, "layouts": self.costs.plain()}

    @classmethod
    def of_plain(cls, content: Any) -> TuningTable:
        """The table of what `plain` gave."""
        if not isinstance(content, Mapping) or not isinstance(content.get("rows"), list):
            raise ValueError("this is no table of tuned dataflows")
        if content.get("format") != FORMAT:
            raise ValueError(f"format {content.get('format')}, this version reads {FORMAT}")
        costs = LayoutCosts.of_plain(content.get("layouts", []))
        return cls((_read(row) for row in content["rows"]), costs)


def _written(choice: Choice) -> dict[str, Any]:
    return {"ms": choice.ms, **settings_of(choice.dataflow)}


def _read(row: Any) -> tuple[Signature, Bucket, Choices]:
    if not isinstance(row, Mapping) or not isinstance(row.get("choices"), list):
        raise ValueError(f"{row!r} is no row of such a table")
    signature: list[Any]
    bucket: list[Any]
    signature, bucket = ([row.get(f.name) for f in fields(kind)] for kind in (Signature, Bucket))
    strings, numbers = [*signature[:3], signature[-1]], [*signature[3:-1], *bucket]
    if not all(isinstance(word, str) for word in strings):
        raise ValueError(f"{strings} are no device, Triton, dtype and product")
    if not all(isinstance(number, int | float) for number in numbers):
        raise ValueError(f"{numbers} are no sizes of a product")
    choices = [
        Choice(dataflow_of(one), float(one["ms"]))
        for one in row["choices"]
        if isinstance(one, Mapping) and isinstance(one.get("ms"), int | float)
    ]
    if len(choices) != len(row["choices"]):
        raise ValueError(f"{row['choices']!r} are no choices")
    return Signature(*signature), Bucket(*bucket), tuple(choices)


def _read_cost(row: Any) -> tuple[MapSize, Names, float]:
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
