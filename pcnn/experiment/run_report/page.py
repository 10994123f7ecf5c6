"""The page of a report: one file with everything in it, which asks no network for anything."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from pathlib import Path

from pcnn.experiment.run_report import tables
from pcnn.experiment.run_report.chart import Line, line_chart
from pcnn.experiment.run_report.recorded import RecordedRun
from pcnn.experiment.run_report.tables import text
from pcnn.files.whole_file import whole_file
from pcnn.plural import counted
from pcnn.visualize.view.held import HeldView, read_view
from pcnn.visualize.view.page import digest, program, template

#: Colours and dashes that the style sheet has.
_STYLES = 6

#: Most pictures of a run, and most bytes of one.
_PICTURES, _PICTURE = 8, 1 << 24

#: Most views of a run: each takes some MB.
_VIEWS = 4

#: Names of the pictures that come first.
_FIRST = ("predictions", "recall")

_HERE = Path(__file__).parent
_SPEED = ("speed/", "memory/")
_WIDE = ("loss", "lr")  # figures that fall by orders of magnitude


def write_report(path: str | Path, runs: Sequence[RecordedRun], views: bool = True) -> Path:
    """Write runs as one page, side by side where there are several.

    Args:
        path: file to write, whole; its folder is created.
        runs: at least one.
        views: whether interactive views are held, a few MB each.

    Returns:
        `path`.

    Raises:
        ValueError: no run.
        FileError: a view that is damaged or of another version.
        StorageError: the file cannot be written.
    """
    if not runs:
        raise ValueError("a report needs a run")
    path = Path(path)
    style, script = ((_HERE / name).read_text("utf-8") for name in ("report.css", "report.js"))
    shown = _held(runs) if views else []
    title = f"Report of {counted(len(runs), 'run')}: {', '.join(run.name for run in runs)}"
    sections = {
        "Runs": _legend(runs) + tables.about(runs),
        "Figures": tables.figures(runs) + tables.classes(runs),
        "Curves": _charts(runs, speed=False),
        "Confusion": _side(map(tables.confusion, runs)),
        "Throughput and memory": tables.speed(runs) + _charts(runs, speed=True),
        "Pictures": _pictures(runs),
        "Views": _views(shown),
        "Configuration": _configuration(runs),
    }
    sections = {name: content for name, content in sections.items() if content}
    links = "".join(f'<a href="#{_anchor(name)}">{name}</a>' for name in sections)
    simulated = [run.name for run in runs if tables.source_of(run) == "simulated"]
    notice = (
        f'<p class="simulated">SIMULATED DATA: {text(", ".join(simulated))}</p>'
        if simulated
        else ""
    )
    view_style, view_scripts = program()
    scripts = [script, *(view_scripts if shown else ())]
    styles = [style, *([view_style] if shown else ())]
    policy = (
        f"default-src 'none'; script-src {' '.join(map(digest, scripts))}; "
        f"style-src {' '.join(map(digest, styles))}; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )
    with whole_file(path) as file:
        file.write(
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{text(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n"
            f"<h1>{text(title)}</h1>\n{notice}<nav>{links}</nav>\n".encode()
        )
        for name, content in sections.items():
            file.write(
                f'<section id="{_anchor(name)}"><h2>{name}</h2>\n{content}</section>\n'.encode()
            )
        for block in _program_blocks(view_style, view_scripts, shown):
            file.write(block.encode())
        file.write(f"<script>{script}</script>\n</body>\n</html>\n".encode())
    return path


def _side(parts: Iterable[str]) -> str:
    """Parts side by side where there is room; nothing where there are none."""
    content = "".join(parts)
    return f'<div class="side">{content}</div>' if content else ""


def _anchor(name: str) -> str:
    return name.split()[0].lower()


def _legend(runs: Sequence[RecordedRun]) -> str:
    entries = [
        f'<li><svg viewBox="0 0 34 10" aria-hidden="true"><g class="line r{n % _STYLES}">'
        f'<path d="M0 5H34"/></g></svg>{text(run.name)}</li>'
        for n, run in enumerate(runs)
    ]
    return f'<ul class="runs">{"".join(entries)}</ul>'


def _charts(runs: Sequence[RecordedRun], speed: bool) -> str:
    """A chart for every figure: its training as a line, its validation as a line with dots.

    Figures of which no run has two values are left to the tables.
    """
    names = list(dict.fromkeys(name for run in runs for name in run.series))
    charts: dict[str, list[Line]] = {}
    for name in names:
        if name.startswith(_SPEED) != speed or name.count("/") > 1:
            continue
        split, _, figure = name.partition("/")
        title = figure if figure and not speed else name
        for number, run in enumerate(runs):
            points = run.series.get(name)
            if points:
                label, dots = f"{run.name}, {name}", split in ("val", "test")
                charts.setdefault(title, []).append(Line(label, points, number % _STYLES, dots))
    charts = {
        title: lines for title, lines in charts.items() if max(len(one.points) for one in lines) > 1
    }
    if not charts:
        return ""
    note = "" if speed else '<p class="faint">Lines with dots are validations.</p>'
    drawn = "".join(
        line_chart(title, lines, title.endswith(_WIDE)) for title, lines in charts.items()
    )
    return f'{note}<div class="charts">{drawn}</div>'


def _pictures(runs: Sequence[RecordedRun]) -> str:
    found = []
    for run in runs:
        own = sorted(run.pictures, key=lambda path: (path.stem not in _FIRST, path.name))
        own = [path for path in own if path.stat().st_size <= _PICTURE]
        for path in own[:_PICTURES]:
            data = base64.b64encode(path.read_bytes()).decode()
            label = text(f"{run.name}: {path.name}")
            found.append(
                f'<figure><figcaption>{label}</figcaption><img alt="{label}" '
                f'src="data:image/png;base64,{data}"></figure>'
            )
        if len(own) > _PICTURES:
            left = counted(len(own) - _PICTURES, "picture")
            found.append(f'<p class="faint">{left} more in {text(run.folder)}</p>')
    return _side(found)


def _held(runs: Sequence[RecordedRun]) -> list[tuple[str, HeldView]]:
    """Views of the runs with their names; pages of another kind are left out."""
    found = []
    for run in runs:
        read = ((path, read_view(path)) for path in run.views)
        own = [(f"{run.name}: {path.name}", view) for path, view in read if view is not None]
        found += own[:_VIEWS]
    return found


def _views(shown: Sequence[tuple[str, HeldView]]) -> str:
    found = [
        f"<figure><figcaption>{text(name)}: {text(view.title)}</figcaption>"
        f'<button type="button" data-view="view-{number}" data-title="{text(name)}">'
        "show the cloud</button></figure>"
        for number, (name, view) in enumerate(shown)
    ]
    return _side(found)


def _program_blocks(
    style: str, scripts: tuple[str, str], shown: Sequence[tuple[str, HeldView]]
) -> list[str]:
    """Elements that hold the program of views once, and the data of each; none of them runs."""
    if not shown:
        return []

    def block(name: str, content: str) -> str:
        return f'<script type="text/plain" id="{name}">{content}</script>\n'

    def encoded(content: str) -> str:
        return base64.b64encode(content.encode()).decode()

    return [
        block("view-style", style),
        block("view-three", scripts[0]),
        block("view-program", scripts[1]),
        block("view-page", encoded(template())),
        *(block(f"view-{number}", encoded(view.blocks)) for number, (_, view) in enumerate(shown)),
    ]


def _configuration(runs: Sequence[RecordedRun]) -> str:
    differing, everything = tables.configuration(runs)
    several = len(runs) > 1
    first = f"<h3>What differs</h3>{differing}" if differing else ""
    if several and not differing:
        first = "<p>Every value is the same.</p>"
    return f"{first}<details><summary>all values</summary>{everything}</details>"
