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

import pandas as pd
import yaml

from benchmarks.rows import Row, is_measured, read
from pcnn.errors import FileError

PAPERS = Path(__file__).with_name("papers.yaml")  # the papers' claims
#: Recorded times of the authors' own code.
RECORDED = Path(__file__).parent / "recorded" / "h200.json"
#: Keys that are no part of a place: how a row was checked, what the scene is like.
_NO_PLACE = ("checked_on", "triplets", "figure", "run", "cache", "variant_of")
OTHERS = ("tf32", "float32")  # dtypes that have a line of their own beside the rest of the rows
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

#: Times of rows, and what a ratio of them is called.
CLOCKS = {"on_device_ms": "in kernels", "wall_ms": "by the wall"}
Frame = Any
Reading = Mapping[str, Any]


def keys_of(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(k for row in rows for k in row if k not in ("result", "machine")))


def chosen(data: Frame, where: Mapping[str, Any]) -> Frame:
    for name, value in where.items():
        data = data[data[name] == value] if name in data else data[:0]
    return data


def ratio(reading: Reading, data: Frame, keys: Sequence[str], clock: str) -> Frame | None:
    """Time of one thing over that of another at every place that both were measured at."""
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
    return math.exp(ratios.map(math.log).mean())


def _ratio(reading: Reading, data: Frame, keys: Sequence[str]) -> str:
    said = []
    for clock, name in CLOCKS.items():
        found = ratio(reading, data, keys, clock)
        if found is not None:
            mean = f"{mean_ratio(found):.2f}×"
            if len(found) > 1:
                mean += f" ({found.min():.2f} to {found.max():.2f}, {len(found)} places)"
            said.append(f"{mean} {name}")
    return f"{reading['ratio']}: {', '.join(said)}" if said else ""


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
    printed = [r for r in claim.get("readings", ()) if "printed" in r]
    if not printed:
        return ""
    reading = printed[0]
    clocks = ["wall_ms"] if reading.get("clock") == "wall" else CLOCKS
    found = [ratio(reading, data, keys, clock) for clock in clocks]
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


def by_figure(files: Mapping[Path, Sequence[Row]]) -> dict[str, list[tuple[Path, Row]]]:
    found: dict[str, list[tuple[Path, Row]]] = {}
    for path, rows in files.items():
        for row in rows:
            if is_measured(row) and "figure" in row:
                found.setdefault(row["figure"], []).append((path, row))
    return found


def papers_page(files: Mapping[Path, Sequence[Row]]) -> str:
    lines, rows = [HEAD], by_figure(files)
    for paper in papers():
        lines += [f"## {paper['name']}", "", f"{paper['title']}; {paper['gpu']}.", ""]
        lines += ["| | the paper's claim | ours | verdict | why |", "|---|---|---|---|---|"]
        used: dict[str, set[str]] = {}
        for claim in paper["claims"]:
            found = rows.get(claim.get("figure", ""), [])
            lines.append(_line(claim, [row for _, row in found]))
            for path, row in found:
                on = row["machine"]
                about = f"{on['device']}, {on.get('date', '')}, {on['revision']}"
                used.setdefault(path.name, set()).add(about)
        if used:
            said = "; ".join(f"`{name}` ({'; '.join(sorted(used[name]))})" for name in used)
            lines += ["", f"Rows: {said}."]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def papers() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load(PAPERS.read_text())["papers"]
    return found


def missing(results: Path) -> list[str]:
    """Figures that no row of the result files shows."""
    rows = by_figure(result_files(results))
    claims = [claim for paper in papers() for claim in paper["claims"] if "figure" in claim]
    found = {one["figure"]: [row for _, row in rows.get(one["figure"], [])] for one in claims}
    lines = {one["figure"]: _line(one, found[one["figure"]]) for one in claims}
    return [name for name, line in lines.items() if "| not measured |" in line]


def result_files(results: Path) -> dict[Path, list[Row]]:
    """Rows by file; files of another kind are left out."""
    files: dict[Path, list[Row]] = {}
    for path in sorted(results.glob("*.json")):
        with suppress(FileError):
            files[path] = read(path)
    return files


def table(rows: Sequence[Row]) -> Any:
    """Rows as a table, with ``on_device_ms`` and ``time_ms``."""
    flat = [{**row.get("machine", {}), **row, **row["result"]} for row in rows]
    data = pd.DataFrame(flat).drop(columns=["machine", "result"], errors="ignore")
    for name in ("device_ms", "busy_ms", "wall_ms"):
        if name not in data:
            data[name] = None
    data["on_device_ms"] = data["device_ms"].fillna(data["busy_ms"])
    data["time_ms"] = data["on_device_ms"].fillna(data["wall_ms"])
    return data.infer_objects()


def _line(claim: Mapping[str, Any], rows: Sequence[Row]) -> str:
    cells = ["not measured", "", claim.get("why", "")]
    if "absent" in claim:
        cells = ["not shown", "", claim["absent"]]
    elif "page" in claim:
        cells = [f"[{claim['page']}]({claim['page']})", "", claim["why"]]
    elif rows and (said := _readings(claim, data := table(rows), keys_of(rows))):
        keys = keys_of(rows)
        half = data if "dtype" not in data or "step" in data else data[~data["dtype"].isin(OTHERS)]
        judged = verdict(claim, half if len(half) else data, keys)
        cells = [f"`{claim['figure']}`<br>" + "<br>".join(said), judged, claim.get("why", "")]
    found = (claim["part"], claim["claim"], *cells)
    return "| " + " | ".join(one.replace("|", "\\|").replace("\n", " ") for one in found) + " |"


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


def _speed(rows: Sequence[Row], most: int | None) -> str:
    """Smallest median wall times at every place, one column an engine or package."""
    data = table(rows)
    data = data[data["device"] == data.loc[data["figure"].notna(), "device"].mode()[0]]
    data = data.dropna(subset=["wall_ms"])
    found = []
    ours = chosen(data[data["figure"].notna()], USUAL)[list(PLACE)].drop_duplicates()
    for values in ours.itertuples(index=False):
        here = chosen(data, dict(zip(PLACE, values, strict=True)))
        cells = {}
        for title, wanted in COLUMNS.items():
            own = chosen(here, {**USUAL, **wanted})
            own = own[own["same_work"].isna()] if "same_work" in own else own
            if len(own):
                cells[title] = float(own["wall_ms"].min())
        found.append((values, cells))
    found = sorted(found, key=lambda one: -len(one[1]))[:most]
    titles = [title for title in COLUMNS if any(title in cells for _, cells in found)]
    lines = ["| " + " | ".join([*PLACE, *titles]) + " |"]
    lines.append("|" + "---|" * len(PLACE) + "--:|" * len(titles))
    for values, cells in sorted(found, key=lambda one: str(one[0])):
        said = [f"{cells[title]:.2f}" if title in cells else "-" for title in titles]
        best = f"{min(cells.values(), default=0.0):.2f}"
        said = [f"**{one}**" if one == best else one for one in said]
        lines.append("| " + " | ".join([*map(_number, values), *said]) + " |")
    return "\n".join(lines)


#: Tables by name: most places in it.
TABLES = {"headline": 6, "speed": None}
PLACE = ("model", "workload", "n")  # columns of a place
SHOWN = {("networks", "infer"), ("networks", "graph")}  # figures and modes of their rows
USUAL = {"what": "network", "mode": "infer", "dtype": "float16"}  # values of all rows


def write_pages(results: Path, docs: Path) -> list[Path]:
    files = result_files(results)
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
    own = [r for r in rows if r["what"] == "network" and r.get("figure") in ("networks", None)]
    if match[2] not in TABLES or not any("figure" in row for row in own):
        return match[0]
    kinds = {p.name: {(r["figure"], r.get("mode")) for r in part} for p, part in files.items()}
    paths = [name for name, held in kinds.items() if held & SHOWN]
    sources = ", ".join(f"`benchmarks/results/{path}`" for path in paths)
    note = f"Median wall times [ms]: {sources}; * authors' code:\n`benchmarks/recorded/h200.json`."
    return f"{match[1]}{_speed(own, TABLES[match[2]])}\n\n{note}\n{match[3]}"
