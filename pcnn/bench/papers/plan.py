"""The figures that a run over the papers measures, their order, and which are whole already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pcnn.bench.papers.page import claimed
from pcnn.bench.rows import Header
from pcnn.bench.setting import TypedSetting
from pcnn.bench.suite import REST, Figure, kept, until

#: Dtypes of end-to-end figures on a GPU; all others are measured in the first alone.
DTYPES = ("float16", "tf32", "float32")
#: Figures of whole networks, which papers are read for: they come first.
END_TO_END = ("spira_fig8", "torchsparse_fig11", "minuet_fig12")
_FIRST = (*END_TO_END, "minuet_fig14", "spira_fig13", "minuet_fig13", "spira_fig16", "spira_table1")
#: Folder of figures that were cut short.
UNFINISHED = "unfinished"


@dataclass(frozen=True)
class Job:
    """A figure in one dtype, and its file.

    Args:
        suite: that measures it.
        figure: the figure.
        dtype: name of the dtype; ``None``: the figure has none.
    """

    suite: str
    figure: Figure[Any]
    dtype: str | None = None

    @property
    def name(self) -> str:
        """Of its file, without a suffix."""
        return "-".join(filter(None, (self.figure.name, self.dtype)))

    def file(self, folder: Path) -> Path:
        """Its file when it is whole."""
        return folder / f"{self.name}.json"

    def is_whole(self, folder: Path, header: Header) -> bool:
        """Whether the folder holds it already, of the same device, torch and commit.

        Raises:
            ValueError: its file is no result file.
        """
        return bool(kept(self.file(folder), header))

    def within(self, seconds: float) -> Figure[Any]:
        """The figure, which begins no row after so many seconds."""
        measure = self.figure.measure
        return replace(
            self.figure, measure=lambda setting, name: until(measure(setting, name), seconds, name)
        )


def jobs(
    suites: Mapping[str, tuple[type[Any], Sequence[Figure[Any]]]],
    papers: Sequence[str] = (),
    figures: Sequence[str] = (),
    dtypes: Sequence[str] = (),
    on_gpu: bool = True,
) -> list[Job]:
    """Jobs in the order in which they are measured.

    Args:
        suites: by name, their setting and their figures.
        papers: names; none: all.
        figures: of suites; none: all that show something of the papers.
        dtypes: of figures that compute; none: as above.
        on_gpu: whether it is a GPU: on a CPU there is float32 alone.

    Raises:
        ValueError: no such paper or figure.
    """
    wanted = claimed(papers, figures)
    every = tuple(dtypes) or (DTYPES if on_gpu else ("float32",))
    ranked = [*(name for name in _FIRST if name in wanted)]
    ranked += [name for name in wanted if name not in _FIRST]
    found: list[Job] = []
    for name in ranked:
        ((suite, figure),) = [
            (suite, figure)
            for suite, (_, own) in suites.items()
            for figure in own
            if figure.name == name
        ]
        if not issubclass(suites[suite][0], TypedSetting):
            found.append(Job(suite, figure))
            continue
        chosen = every if dtypes or name in END_TO_END else every[:1]
        found += [Job(suite, figure, dtype) for dtype in chosen]
    # the first dtype of everything before the others of anything
    return sorted(found, key=lambda job: job.dtype not in (None, every[0]))


def was_cut(rows: Sequence[Any]) -> bool:
    """Whether rows of a figure say that something was left out as time was short."""
    return any(row.engine == REST for row in rows)
