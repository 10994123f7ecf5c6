"""Tables of a report: figures, classes, confusion, configuration and speed of several runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

from pcnn.escaping import visible
from pcnn.experiment.run_report.meanings import meaning
from pcnn.experiment.run_report.recorded import RecordedRun
from pcnn.metrics.iou import class_accuracy, iou, present
from pcnn.plural import counted

#: Shades of the cells of a confusion matrix.
SHADES = 10

#: Entries of metrics.json and of the configuration that say which run it is.
_ABOUT = ("dataset", "source", "model", "task", "geometry", "engine", "seed", "steps", "revision")

Row = tuple[str, Sequence[str], bool]  # heading, cells, marked


def text(value: object) -> str:
    """A value as HTML, control characters escaped too."""
    return escape(visible("-" if value is None else value))


def table(
    head: Sequence[str],
    rows: Sequence[Row],
    kind: str = "",
    said: Callable[[str], str] | None = None,
) -> str:
    """A table with a heading for every row; marked rows have a sign and a class.

    Args:
        head: headings of the columns.
        rows: the rows.
        kind: class of the table.
        said: words behind a row, by its heading.
    """
    first = "".join(f"<th>{text(one)}</th>" for one in head)
    lines = []
    for name, cells, marked in rows:
        sign = '<td class="sign">≠</td>' if marked else '<td class="sign"></td>'
        inner = "".join(f"<td>{text(cell)}</td>" for cell in cells)
        if said is not None:
            inner += f'<td class="said">{text(said(name))}</td>'
        lines.append(
            f'<tr class="{"differs" if marked else ""}"><th>{text(name)}</th>{sign}{inner}</tr>'
        )
    return (
        f'<div class="wide"><table class="{kind}"><thead><tr><th></th><td class="sign"></td>'
        f"{first}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


def about(runs: Sequence[RecordedRun]) -> str:
    """The runs: what was trained on what, for how long, by which version."""
    rows: list[Row] = []
    for name in _ABOUT:
        cells = [_about(run, name) for run in runs]
        if any(cell != "-" for cell in cells):
            rows.append((name, cells, len(set(cells)) > 1))
    rows.append(("folder", [str(run.folder) for run in runs], False))
    return table([run.name for run in runs], rows)


def _about(run: RecordedRun, name: str) -> str:
    if run.metrics:
        value = run.metrics.get(name)
    elif name == "steps":
        last = max((values[-1][0] for values in run.series.values()), default=0)
        return f"not finished, {counted(last, 'step')} so far"
    else:
        value = run.config.get(name, run.config.get(f"{name}.name", run.config.get(f"data.{name}")))
    return "-" if value is None else str(value)


def source_of(run: RecordedRun) -> str:
    """``real`` or ``simulated``; ``-`` where the folder does not say."""
    return _about(run, "source")


def figures(runs: Sequence[RecordedRun]) -> str:
    """Final figures, without those of single classes; the last state's where it is another."""
    names = [name for run in runs for name in run.figures if name.count("/") < 2]
    rows: list[Row] = []
    for name in dict.fromkeys(names):
        cells = [_number(run.figures.get(name)) for run in runs]
        rows.append((name, cells, False))
    return table([run.name for run in runs], rows, "numbers", meaning) if rows else ""


def classes(runs: Sequence[RecordedRun]) -> str:
    """IoU of every class, or the share of right answers of a classification, in percent."""
    columns: dict[str, dict[str, float]] = {}
    kinds = set()
    for run in runs:
        if run.counts is None:
            continue
        for name, counts in run.counts.passes.items():
            whole = run.metrics.get("task") == "classification"
            kinds.add("right answers" if whole else "IoU")
            values = (class_accuracy if whole else iou)(counts).tolist()
            here = present(counts).tolist()
            label = name if len(runs) == 1 else f"{run.name}, {name}"
            columns[label] = {
                one: 100 * value
                for one, value, there in zip(run.counts.class_names, values, here, strict=True)
                if there
            }
    known = [name for run in runs if run.counts is not None for name in run.counts.class_names]
    names = [name for name in dict.fromkeys(known) if any(name in c for c in columns.values())]
    if not names:
        return ""
    cells = {name: [_percent(column.get(name)) for column in columns.values()] for name in names}
    rows: list[Row] = [(name, values, False) for name, values in cells.items()]
    rows.append(("mean of these", [_percent(_mean(column)) for column in columns.values()], False))
    title = f"<h3>{' and '.join(sorted(kinds))} of each class [%]</h3>"
    return title + table(list(columns), rows, "numbers")


def _mean(column: Mapping[str, float]) -> float | None:
    return sum(column.values()) / len(column) if column else None


def confusion(run: RecordedRun) -> str:
    """Every pass of a run: of the points of a class, the share that each class was given."""
    found: list[str] = []
    if run.counts is None:
        return ""
    names = run.counts.class_names
    for name, counts in run.counts.passes.items():
        kept = present(counts).tolist()
        rows = []
        for true, (class_name, row) in enumerate(zip(names, counts.tolist(), strict=True)):
            if not kept[true]:
                continue
            total = sum(row)
            cells = []
            for given, number in enumerate(row):
                share = number / total
                shade = min(round(share * SHADES), SHADES) if number else 0
                own = " own" if given == true else ""
                said = f"{100 * share:.0f}" if share >= 0.005 else "" if not number else "·"
                of = names[given] if given < len(names) else "no class"
                title = f"{class_name} taken for {of}: {number:,}"
                cells.append(f'<td class="s{shade}{own}" title="{text(title)}">{said}</td>')
            rows.append(f"<tr><th>{true} {text(class_name)}</th>{''.join(cells)}</tr>")
        head = "".join(f'<th title="{text(one)}">{number}</th>' for number, one in enumerate(names))
        found.append(
            f"<figure><figcaption>{text(run.name)}, {text(name)}</figcaption>"
            f'<div class="wide"><table class="confusion"><thead><tr><th>truth, prediction</th>'
            f"{head}<th>none</th></tr></thead><tbody>{''.join(rows)}</tbody></table></div></figure>"
        )
    return "".join(found)


def speed(runs: Sequence[RecordedRun]) -> str:
    """Means of speeds, the peak of memory, and the time to the first step."""
    names = sorted({n for run in runs for n in run.series if n.startswith(("speed/", "memory/"))})
    rows: list[Row] = []
    for name in names:
        cells = []
        for run in runs:
            values = [value for _, value in run.series.get(name, ())]
            memory = name.startswith("memory/")
            mean = (max(values) if memory else sum(values) / len(values)) if values else None
            cells.append(_number(mean))
        what = "peak" if name.startswith("memory/") else "mean"
        rows.append((f"{name}, {what}", cells, False))
    starts = [run.metrics.get("start", {}) for run in runs]
    for name in sorted({name for start in starts if isinstance(start, dict) for name in start}):
        rows.append((f"start: {name}", [_number(start.get(name)) for start in starts], False))
    return table([run.name for run in runs], rows, "numbers", meaning) if rows else ""


def configuration(runs: Sequence[RecordedRun]) -> tuple[str, str]:
    """Values that differ between the runs, and all values with those marked."""
    names = sorted({name for run in runs for name in run.config})
    rows: list[Row] = []
    for name in names:
        cells = [_value(run.config, name) for run in runs]
        rows.append((name, cells, len(set(cells)) > 1))
    head = [run.name for run in runs]
    differing = [row for row in rows if row[2]]
    return table(head, differing) if differing else "", table(head, rows)


def _value(config: Mapping[str, Any], name: str) -> str:
    return str(config[name]) if name in config else "absent"


def _number(value: object) -> str:
    if not isinstance(value, int | float):
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
