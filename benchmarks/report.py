"""Tables of pages, written from result files: the papers' claims, and speed beside other packages.

A page holds a table between ``<!-- table: NAME -->`` and ``<!-- end of table -->``, where NAME is
one of `TABLES`; `write_pages` fills all that it finds, and writes ``results/papers.md`` whole.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from benchmarks.charts import table
from benchmarks.rows import Row, is_measured, read
from pcnn.errors import FileError

#: The papers' claims.
PAPERS = Path(__file__).with_name("papers.yaml")
#: Recorded times of the authors' own code.
RECORDED = Path(__file__).parent / "recorded" / "h200.json"
#: Keys that are no part of a place: how a row was checked, what the scene is like.
_NO_PLACE = ("checked_on", "triplets", "figure", "run", "cache", "variant_of")
#: Dtypes that have a line of their own beside the rest of the rows.
OTHERS = ("tf32", "float32")
#: A table in a page.
SLOT = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end of table -->)", re.DOTALL)

HEAD = """# Claims of the papers

One row a figure or table: what the paper says, and what the rows of our result files say of the
same comparison. `python -m benchmarks report` writes this page from the files that are named below
each table; `python -m benchmarks figure NAME` measures a figure again.

- Every engine here is this package's, written from its paper: `torchsparse / minuet: 1.5×` compares
  two methods in our kernels, not two programs. Times of the authors' own code are in
  `benchmarks/recorded/h200.json`.
- Ratios are geometric means over all places (workload, network or layer) that both sides were
  measured at, with the smallest and the largest. *In kernels* is time of the device, *by the wall*
  from start to end of a call on an idle device, in which the host takes part.
- *agrees*: within a factor of two of the paper's gain on a logarithmic scale; *less*, *more*:
  beyond it; *reversed*: the other one is ahead.
- Rows are in float16 unless a line names another dtype. Data are scans, rooms and random scenes in
  place of the paper's.
"""

Frame = Any
Reading = Mapping[str, Any]


def keys_of(rows: Sequence[Row]) -> list[str]:
    """Keys that tell rows apart."""
    return list(dict.fromkeys(k for row in rows for k in row if k not in ("result", "machine")))


def chosen(data: Frame, where: Mapping[str, Any]) -> Frame:
    """Rows that have these values."""
    for name, value in where.items():
        data = data[data[name] == value] if name in data else data[:0]
    return data


def ratio(reading: Reading, data: Frame, keys: Sequence[str], clock: str) -> Frame | None:
    """Time of one thing over that of another at every place that both were measured at.

    Of several runs, and of several settings named in ``apart``, the quickest counts: engines take
    their best.
    """
    slow, fast, summed = reading["slow"], reading["fast"], reading.get("summed")
    out = {*slow, *fast, *reading.get("apart", ()), *_NO_PLACE, summed}
    place = [key for key in keys if key in data and key not in out]
    kept = chosen(data, reading.get("where", {}))
    sides = []
    for wanted in (slow, fast):
        own = chosen(kept, wanted).dropna(subset=[clock]) if clock in kept else kept[:0]
        if own.empty:
            return None
        best = own.groupby([*place, *filter(None, [summed])], dropna=False)[clock].min()
        sides.append(best.groupby(place, dropna=False).sum() if summed else best)
    both = sides[0].to_frame("slow").join(sides[1].to_frame("fast"), how="inner")
    both = both[(both["slow"] > 0) & (both["fast"] > 0)]
    return None if both.empty else both["slow"] / both["fast"]


def mean_ratio(ratios: Frame) -> float:
    """Geometric mean."""
    return math.exp(ratios.map(math.log).mean())


def _ratio(reading: Reading, data: Frame, keys: Sequence[str]) -> str:
    said = []
    for clock, name in (("device", "in kernels"), ("wall", "by the wall")):
        found = ratio(reading, data, keys, _column(clock))
        if found is not None:
            mean = f"{mean_ratio(found):.2f}×"
            if len(found) > 1:
                mean += f" ({found.min():.2f} to {found.max():.2f}, {len(found)} places)"
            said.append(f"{mean} {name}")
    return f"{reading['ratio']}: {', '.join(said)}" if said else ""


def _column(clock: str) -> str:
    return "on_device_ms" if clock == "device" else "wall_ms"


def _share(reading: Reading, data: Frame, keys: Sequence[str]) -> str:
    own = chosen(data, reading["where"]).dropna(subset=["time_ms"])
    if own.empty:
        return ""
    place = [key for key in keys if key in own and key not in ("part", *_NO_PLACE)]
    whole = own.groupby(place, dropna=False)["time_ms"].transform("sum")
    shares = (100 * own["time_ms"] / whole).groupby(own["part"], sort=False).mean()
    said = ", ".join(f"{part} {share:.0f} %" for part, share in shares.items())
    return f"{reading['share']}: {said}"


def _mean(reading: Reading, data: Frame, keys: Sequence[str]) -> str:
    own = chosen(data, reading.get("where", {}))
    values = own[reading["of"]].dropna() if reading["of"] in own else own[:0]
    if len(values) == 0:
        return ""
    digits, unit = reading.get("digits", 0), reading.get("unit", "")
    low, mean, high = (f"{one:.{digits}f}" for one in (values.min(), values.mean(), values.max()))
    unit = f" {unit}" if unit else ""
    if reading.get("largest") or low == high:
        return f"{reading['mean']}: {high}{unit}"
    return f"{reading['mean']}: {mean}{unit} ({low} to {high})"


def _best(reading: Reading, data: Frame, keys: Sequence[str]) -> str:
    names = reading["by"]
    own = chosen(data, reading.get("where", {})).dropna(subset=["time_ms"])
    if own.empty or any(name not in own for name in names):
        return ""
    place = [key for key in keys if key in own and key not in (*names, *_NO_PLACE)]
    wins = own.loc[own.groupby(place, dropna=False)["time_ms"].idxmin()]
    counts = wins.groupby(names).size().sort_values(ascending=False)
    said = [
        f"{', '.join(map(_number, value if isinstance(value, tuple) else (value,)))} at {count} "
        f"place{'s' if count > 1 else ''}"
        for value, count in counts[:4].items()
    ]
    return f"{reading['best']}: {', '.join(said)}"


def _number(value: Any) -> str:
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def _counts(reading: Reading, data: Frame, keys: Sequence[str]) -> str:
    own = chosen(data, reading.get("where", {}))
    if own.empty:
        return ""
    said = []
    for (model, workload), part in own.groupby(["model", "workload"], sort=False):
        pairs = zip(part[reading["counts"]], part[reading["of"]], strict=True)
        said.append(f"{model} on {workload}: " + ", ".join(f"{a} {b:g}" for a, b in pairs))
    return "; ".join(said)


READINGS: dict[str, Callable[[Reading, Frame, Sequence[str]], str]] = {
    "ratio": _ratio,
    "share": _share,
    "mean": _mean,
    "best": _best,
    "counts": _counts,
}


def verdict(claim: Mapping[str, Any], data: Frame, keys: Sequence[str]) -> str:
    """Whether our rows agree with the first number that the paper prints."""
    printed = [r for r in claim.get("readings", ()) if "printed" in r]
    if not printed:
        return ""
    reading = printed[0]
    clocks = [reading["clock"]] if "clock" in reading else ["device", "wall"]
    found = [ratio(reading, data, keys, _column(clock)) for clock in clocks]
    ours = next((mean_ratio(one) for one in found if one is not None), None)
    if ours is None:
        return ""
    ahead = reading["printed"] == "ahead"
    if (ours > 1) != (ahead or reading["printed"] > 1):
        return "reversed"
    share = 1.0 if ahead else math.log(ours) / math.log(reading["printed"])
    return "less" if share < 0.5 else "more" if share > 2 else "agrees"


def _readings(claim: Mapping[str, Any], data: Frame, keys: Sequence[str]) -> list[str]:
    """Readings of the rows, those of other dtypes apart; a step may be one of the dtype."""
    said = []
    dtypes = data.get("dtype")
    steps = "step" in data and bool(data["step"].notna().any())
    for dtype in (None, *OTHERS):
        if dtypes is None or (steps and dtype is None):
            own = data if dtype is None else data[:0]
        else:
            own = data[~dtypes.isin(OTHERS)] if dtype is None else data[dtypes == dtype]
        for reading in claim.get("readings", ()) if len(own) else ():
            kind = next(name for name in READINGS if name in reading)
            words = READINGS[kind](reading, own, keys)
            if words:
                said.append(f"{dtype}: {words}" if dtype else words)
    return said


def papers_page(files: Mapping[Path, Sequence[Row]]) -> str:
    """The page of all claims."""
    lines = [HEAD]
    by_figure: dict[str, list[tuple[Path, Row]]] = {}
    for path, rows in files.items():
        for row in rows:
            if is_measured(row) and "figure" in row:
                by_figure.setdefault(row["figure"], []).append((path, row))
    for paper in yaml.safe_load(PAPERS.read_text())["papers"]:
        lines += [f"## {paper['name']}", "", f"{paper['title']}; {paper['gpu']}.", ""]
        lines += ["| | the paper's claim | ours | verdict | why |", "|---|---|---|---|---|"]
        used: dict[str, str] = {}
        for claim in paper["claims"]:
            found = by_figure.get(claim.get("figure", ""), [])
            lines.append(_line(claim, [row for _, row in found]))
            for path, row in found:
                on = row["machine"]
                used[path.name] = f"{on['device']}, {on.get('date', '')}, {on['revision']}"
        if used:
            said = "; ".join(f"`{name}` ({about})" for name, about in used.items())
            lines += ["", f"Rows: {said}."]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _line(claim: Mapping[str, Any], rows: Sequence[Row]) -> str:
    cells = ["not measured", "", claim.get("why", "")]
    if "absent" in claim:
        cells = ["not shown", "", claim["absent"]]
    elif "page" in claim:
        cells = [f"[{claim['page']}]({claim['page']})", "", claim["why"]]
    elif rows and (said := _readings(claim, data := _with_device(table(rows)), keys_of(rows))):
        keys = keys_of(rows)
        half = data if "dtype" not in data else data[~data["dtype"].isin(OTHERS)]
        judged = verdict(claim, half if len(half) else data, keys)
        cells = [f"`{claim['figure']}`<br>" + "<br>".join(said), judged, claim.get("why", "")]
    found = (claim["part"], claim["claim"], *cells)
    return "| " + " | ".join(one.replace("|", "\\|").replace("\n", " ") for one in found) + " |"


def _with_device(data: Frame) -> Frame:
    return data.assign(on_device_ms=data["device_ms"].fillna(data["busy_ms"]))


#: Columns of tables of speed: title, and the rows that belong there.
COLUMNS: dict[str, Mapping[str, Any]] = {
    "`auto`, graph": {"engine": "auto", "mode": "graph"},
    "`auto`": {"engine": "auto"},
    "`spira`": {"engine": "spira"},
    "`minuet`": {"engine": "minuet"},
    "`torchsparse`": {"engine": "torchsparse"},
    "spconv-triton": {"engine": "spconv-triton"},
    "Spira*": {"engine": "Spira"},
    "TorchSparse++*": {"engine": "TorchSparse++"},
    "Minuet*": {"engine": "Minuet"},
    "spconv*": {"engine": "spconv"},
    "WarpConvNet*": {"engine": "WarpConvNet"},
}


def _speed(
    rows: Sequence[Row], place: Sequence[str], usual: Mapping[str, Any], most: int | None
) -> str:
    """Smallest median wall times at every place, one column an engine or package.

    Of more than ``most`` places those stay where most engines were timed.
    """
    data = table(rows)
    data = data[data["device"] == data.loc[data["figure"].notna(), "device"].mode()[0]]
    lines = []
    places = chosen(data[data["figure"].notna()], usual)[list(place)].drop_duplicates()
    found = []
    for values in places.itertuples(index=False):
        here = chosen(data, dict(zip(place, values, strict=True)))
        cells = {}
        for title, wanted in COLUMNS.items():
            own = chosen(here, {**usual, **wanted})
            if "same_work" in own:
                own = own[own["same_work"].isna()]
            if len(own) and own["wall_ms"].notna().any():
                cells[title] = float(own["wall_ms"].min())
        found.append((values, cells))
    found = sorted(found, key=lambda one: -len(one[1]))[:most]
    used = {title for _, cells in found for title in cells}
    titles = [title for title in COLUMNS if title in used]
    lines.append("| " + " | ".join([*place, *titles]) + " |")
    lines.append("|" + "---|" * len(place) + "--:|" * len(titles))
    for values, cells in sorted(found, key=lambda one: str(one[0])):
        least = min(cells.values(), default=0.0)
        said = [f"{cells[t]:.2f}" if t in cells else "-" for t in titles]
        bold = [cells.get(title) == least for title in titles]
        said = [f"**{one}**" if best else one for one, best in zip(said, bold, strict=True)]
        lines.append("| " + " | ".join([*map(_number, values), *said]) + " |")
    return "\n".join(lines)


_NETWORK = ("model", "workload", "n")
_LAYER = ("workload", "k", "c_in", "c_out")
#: Tables by name: the columns of a place, and the values of all their rows.
TABLES: dict[str, tuple[Sequence[str], Mapping[str, Any]]] = {
    "headline": (_NETWORK, {"what": "network", "mode": "infer", "dtype": "float16"}),
    "speed": (_NETWORK, {"what": "network", "mode": "infer", "dtype": "float16"}),
    "training": (_NETWORK, {"what": "network", "mode": "train", "dtype": "float16"}),
    "layers": (_LAYER, {"what": "layer", "dtype": "float16"}),
    "map_and_layer": (_LAYER, {"what": "map+layer", "dtype": "float16"}),
}


def write_pages(results: Path, docs: Path) -> list[Path]:
    """Write the page of claims, and fill the tables of all pages that have one."""
    files: dict[Path, list[Row]] = {}
    for path in sorted(results.glob("*.json")):
        with suppress(FileError):  # of another kind
            files[path] = read(path)
    measured = [r for rows in files.values() for r in rows if is_measured(r)]
    page = docs / "results" / "papers.md"
    page.write_text(papers_page(files))
    written = [page]
    rows = [*measured, *(read(RECORDED) if RECORDED.exists() else [])]
    for path in [docs.parent / "README.md", *sorted(docs.rglob("*.md"))]:
        text = path.read_text()
        filled = SLOT.sub(lambda match: _filled(match, rows, files), text)
        if filled != text:
            path.write_text(filled)
            written.append(path)
    return written


def _filled(match: re.Match[str], rows: Sequence[Row], files: Mapping[Path, Sequence[Row]]) -> str:
    name = match[2]
    if name not in TABLES:
        return match[0]
    place, usual = TABLES[name]
    what = usual["what"]
    figure = "networks" if what == "network" else "layers"
    own = [r for r in rows if r.get("what") == what and r.get("figure") in (figure, None)]
    if not any("figure" in row for row in own):
        return match[0]
    paths = [p.name for p, part in files.items() if any(r.get("figure") == figure for r in part)]
    sources = ", ".join(f"`benchmarks/results/{path}`" for path in paths)
    note = f"Median wall times [ms]: {sources}; * authors' code: `benchmarks/recorded/h200.json`."
    speed = _speed(own, place, usual, 6 if name == "headline" else None)
    return f"{match[1]}{speed}\n\n{note}\n{match[3]}"
