"""Which dataflow was the quickest, by what was computed and how large it was.

A decision holds for one device, dtype, kernel and number of channels. Rows and density vary from
cloud to cloud, so they are buckets, and a lookup takes the decision of the nearest one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from pcnn.dataflows.base import Dataflow
from pcnn.dataflows.layout_costs import LayoutCosts
from pcnn.dataflows.settings import dataflow_of, settings_of

#: Raised when decisions of older files no longer hold: fields of a row, or kernels behind a name.
FORMAT = 1

#: A decision holds for sizes within so many octaves of its own, rows and density together.
REACH = 4.0

#: Products of a layer: the output, the gradient of its features, the gradient of its weights.
PRODUCTS = ("forward", "transposed", "vvor")


@dataclass(frozen=True, order=True)
class Signature:
    """What must be equal for a decision to hold.

    Args:
        device: name and architecture.
        triton: version of Triton, major and minor; ``none`` without it.
        dtype: that operands are rounded to, as ``float16``.
        c_in: input channels of the layer, whatever the product.
        c_out: output channels of the layer.
        groups: groups of channels.
        volume: kernel slots K.
        product: one of `PRODUCTS`.
    """

    device: str
    triton: str
    dtype: str
    c_in: int
    c_out: int
    groups: int
    volume: int
    product: str


@dataclass(frozen=True, order=True)
class Bucket:
    """How large a product is.

    Args:
        log2_rows: of the rows of its output side, to whole octaves.
        log2_pairs: of the mean number of triplets of such a row, to half octaves.
    """

    log2_rows: int
    log2_pairs: float

    @classmethod
    def of(cls, rows: float, pairs_per_row: float) -> Bucket:
        """The bucket of a number of rows and a mean number of triplets of each."""
        pairs = round(2 * math.log2(max(pairs_per_row, 2**-8))) / 2
        return cls(round(math.log2(max(rows, 1))), pairs)

    def distance(self, rows: int, pairs: float | None) -> float:
        """Octaves to another size; ``None``: a density that nobody counted is not compared."""
        apart = abs(self.log2_rows - rows)
        return apart + (0.0 if pairs is None else abs(self.log2_pairs - pairs))


@dataclass(frozen=True)
class Choice:
    """A dataflow and what it took.

    Args:
        dataflow: the quickest of those that read the same layouts.
        ms: its time, mean of the samples [ms].
    """

    dataflow: Dataflow
    ms: float

    def layouts(self, product: str) -> tuple[str, ...]:
        """The layouts it reads for a product."""
        return self.dataflow.needs_vvor if product == "vvor" else self.dataflow.needs


#: Decisions about one size, quickest first.
Choices = tuple[Choice, ...]


class TuningTable:
    """Decisions by signature and bucket.

    Args:
        rows: the decisions; of equal keys the last counts.
        costs: times of making layouts, which decided with those of the dataflows.
    """

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
        self,
        signature: Signature,
        rows: int,
        pairs: float | None,
        layouts: tuple[str, ...] | None = None,
    ) -> tuple[float, Dataflow] | None:
        """The decision about the nearest size within `REACH`.

        Args:
            signature: what must be equal.
            rows: log2 of the output rows.
            pairs: log2 of the triplets of a row, ``None`` where unknown.
            layouts: those there are; a dataflow that reads others is passed over.

        Returns:
            Octaves to that size, and the dataflow.
        """
        sizes = self._rows.get(signature, {})
        for bucket in sorted(sizes, key=lambda one: (one.distance(rows, pairs), one)):
            distance = bucket.distance(rows, pairs)
            if distance > REACH:
                return None
            for choice in sizes[bucket]:
                if layouts is None or set(choice.layouts(signature.product)) <= set(layouts):
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
        """The table of what `plain` gave.

        Raises:
            ValueError: another format, or something that is no table.
        """
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
