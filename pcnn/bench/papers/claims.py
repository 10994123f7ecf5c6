"""The form of a claim: what a figure or table of a paper says, and how ours is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pcnn.bench.papers.readings import Ratio, Reading


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A figure or a table of a paper.

    Args:
        part: its name in the paper.
        claim: what the paper says of it, in our words, with its numbers.
        figure: the figure of a suite that shows it; empty: none does.
        readings: what our rows say; the first `Ratio` with a number of the paper is compared.
        why: one sentence on why ours agrees or not; said beside measured rows alone.
        absent: why it cannot be shown here.
        page: where it is shown, if by something else than a suite.

    Raises:
        ValueError: it is neither shown nor said to be absent.
    """

    part: str
    claim: str
    figure: str = ""
    readings: Sequence[Reading] = ()
    why: str = ""
    absent: str = ""
    page: str = ""

    def __post_init__(self) -> None:
        if sum(map(bool, (self.figure, self.absent, self.page))) != 1:
            raise ValueError(
                f"{self.part}: it needs one of: a figure that shows it, a page, or why it is absent"
            )

    @property
    def compared(self) -> Ratio | None:
        """The ratio that stands beside the paper's number."""
        ratios = (one for one in self.readings if isinstance(one, Ratio))
        return next((one for one in ratios if one.printed is not None), None)


@dataclass(frozen=True)
class Paper:
    """A paper and all its figures and tables.

    Args:
        name: as the command has it.
        title: authors' title, venue and year.
        gpu: what it was measured on.
        claims: in the order of the paper.
    """

    name: str
    title: str
    gpu: str
    claims: Sequence[Claim]
