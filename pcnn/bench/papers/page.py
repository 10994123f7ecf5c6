"""The page of all claims: one row a figure or table, written from result files alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pcnn.bench.papers import minuet, pointcnnpp, spira, torchsparse
from pcnn.bench.papers.claims import Claim, Paper
from pcnn.bench.rows import Header, Row, read_rows
from pcnn.bench.suite import REST, some

PAPERS: tuple[Paper, ...] = (torchsparse.PAPER, minuet.PAPER, spira.PAPER, pointcnnpp.PAPER)
#: Folders of result files of `pcnn bench papers` begin so.
FOLDER = "papers"
NOT_MEASURED = "not measured"
#: Dtypes that have a line of their own beside the rest of the rows.
OTHERS = ("tf32", "float32")

_HEAD = """# Claims of the papers

One row a figure or table: what the paper says, and what the rows of our result files say of the
same comparison. The numbers are read from `benchmarks/results`, the claims and reasons are written
by hand; `python -m benchmarks report` writes the page.

- Every engine here is this package's, written from its paper: `torchsparse / minuet: 1.5×` compares
  two methods in our kernels, not two programs. Times of the authors' own code are in
  `benchmarks/peers/h200.json`.
- Ratios are geometric means over all places (workload, network or layer) that both sides were
  measured at, with the smallest and the largest. *In kernels* is time of the device, *by the wall*
  from start to end of a call on an idle device, in which the host takes part.
- *agrees*: within a factor of two of the paper's gain on a logarithmic scale; *less*, *more*:
  beyond it; *reversed*: the other one is ahead.
- Rows are in float16 unless a line names another dtype. Data are scans, rooms and random scenes in
  place of the paper's: the file of each row names them.
"""


@dataclass(frozen=True)
class Measured:
    """Rows of a figure, and the files that they come from."""

    files: tuple[str, ...]
    header: Header
    rows: tuple[Row, ...]


def measured_figures(folder: Path) -> dict[str, Measured]:
    """Rows by figure: of the folders of `pcnn bench papers`, else of the latest file.

    Args:
        folder: of result files; files that are none are passed over.
    """
    found: dict[str, list[tuple[bool, str, Path, Header, list[Row]]]] = defaultdict(list)
    for path in sorted([*folder.glob("*.json"), *folder.glob(f"{FOLDER}-*/*.json")]):
        try:
            header, rows = read_rows(path)
        except ValueError:
            continue
        by: dict[str, list[Row]] = defaultdict(list)
        for row in rows:
            if row.figure and row.engine != REST:
                by[row.figure].append(row)
        of_papers = path.parent != folder
        for name, own in by.items():
            found[name].append((of_papers, header.date, path, header, own))
    return {name: _latest(folder, files) for name, files in found.items()}


def _latest(folder: Path, files: Sequence[tuple[bool, str, Path, Header, list[Row]]]) -> Measured:
    """All files of a run over the papers, else the latest one."""
    own = [one for one in files if one[0]]
    kept = own or [max(files, key=lambda one: (one[1], one[2].name))]
    names = tuple(path.relative_to(folder).as_posix() for _, _, path, *_ in kept)
    return Measured(names, kept[0][3], tuple(row for *_, rows in kept for row in rows))


def page(folder: Path, papers: Sequence[Paper] = PAPERS) -> str:
    """The page in Markdown.

    Args:
        folder: of result files.
        papers: whose claims are told.
    """
    found = measured_figures(folder)
    lines = [_HEAD]
    for paper in papers:
        lines += [f"## {paper.name}", "", f"{paper.title}; {paper.gpu}.", ""]
        lines += ["| | the paper's claim | ours | verdict | why |", "|---|---|---|---|---|"]
        lines += [_line(claim, found) for claim in paper.claims]
        lines += ["", *_sources(paper, found)]
    return "\n".join(lines).rstrip() + "\n"


def _line(claim: Claim, found: Mapping[str, Measured]) -> str:
    measured = found.get(claim.figure)
    said = _ours(claim, measured.rows) if measured else []
    if claim.absent:
        cells = ["not shown", "", claim.absent]
    elif claim.page:
        cells = [f"[{claim.page}]({claim.page})", "", claim.why]
    elif not said or measured is None:
        cells = [f"`{claim.figure}`: {NOT_MEASURED}", "", ""]
    else:
        cells = [f"`{claim.figure}`<br>" + "<br>".join(said), _verdict(claim, measured), claim.why]
    return "| " + " | ".join(_cell(one) for one in (claim.part, claim.claim, *cells)) + " |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", ", ")


def _ours(claim: Claim, rows: Sequence[Row]) -> list[str]:
    """Readings of the rows, those of other dtypes apart."""
    said = []
    for dtype in (None, *OTHERS):
        own = [row for row in rows if (row.dtype in OTHERS) == (dtype is not None)]
        own = [row for row in own if dtype is None or row.dtype == dtype]
        # a step may be one of the dtype, and must find both sides
        of_steps = any("step" in (row.params or {}) for row in own) and dtype is None
        words = [one.of(rows if of_steps else own) for one in claim.readings]
        said += [f"{dtype}: {one}" if dtype else one for one in words if one]
    return said


def _verdict(claim: Claim, measured: Measured) -> str:
    if claim.compared is None:
        return ""
    return claim.compared.verdict(measured.rows)


def _sources(paper: Paper, found: Mapping[str, Measured]) -> Iterator[str]:
    """Files, device and revision of the rows of a paper."""
    files: dict[str, str] = {}
    for claim in paper.claims:
        measured = found.get(claim.figure)
        for name in measured.files if measured else ():
            header = measured.header if measured else None
            assert header is not None
            files[name] = f"{header.device}, {header.date}, revision {header.revision}"
    if files:
        yield "Rows: " + "; ".join(f"`{name}` ({about})" for name, about in files.items()) + "."
        yield ""


def claimed(names: Sequence[str] = (), figures: Sequence[str] = ()) -> list[str]:
    """Figures of suites that show something of these papers, in the order of the papers.

    Args:
        names: of papers; none: all.
        figures: of suites; none: all.

    Raises:
        ValueError: no such paper, or no figure of that name in it.
    """
    known = {paper.name: paper for paper in PAPERS}
    for name in names:
        if name not in known:
            raise ValueError(f"no paper {name}; there are {some(list(known))}")
    chosen = [known[name] for name in names] or list(PAPERS)
    every = dict.fromkeys(claim.figure for one in chosen for claim in one.claims if claim.figure)
    for figure in figures:
        if figure not in every:
            raise ValueError(f"no figure {figure}; there are {', '.join(every)}")
    return [name for name in every if not figures or name in figures]
