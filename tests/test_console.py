"""Names of files are printed as they are, whatever they hold."""

from __future__ import annotations

import io
import logging
import re
import sys
import time
import warnings
from pathlib import Path

import pytest
from rich.table import Table
from typer.testing import CliRunner

from pcnn.cli.commands import app
from pcnn.console import Console, Progress, plain
from pcnn.messages import escaped_output, say, visible

NAMES = [
    "a[left].bin",
    "x[/z]",
    "[red]",
    "a:smile:",
    "\x1b[31m\x1b]0;x\x07",
    "\u202egnp",
    "a\r\x9b2J",
]


def said(*objects: object, **options: object) -> str:
    file = io.StringIO()
    Console(file=file, width=300).print(*objects, **options)
    return file.getvalue()


@pytest.mark.parametrize("name", NAMES)
def test_names_pass_through_every_place_of_a_console(name: str) -> None:
    shown = visible(name)
    assert shown.isprintable()
    assert said(name) == f"{shown}\n"
    table = Table(name, title=name, caption=name)
    table.add_row(name)
    table.add_row(plain(name))
    assert said(table).count(shown) == 5
    file = io.StringIO()
    Console(file=file, width=10).say(f"{name} is bad", name, "red")
    assert file.getvalue() == f"{shown}: {shown} is bad\n"


def test_lines_and_tabs_stay() -> None:
    assert visible("a\n\tü") == "a\n\tü"


def test_the_project_has_one_console() -> None:
    own = {"console.py", "explaining.py"}  # the latter takes a console of the caller's
    root = Path(__file__).parents[1] / "pcnn"
    found = [
        path
        for path in root.rglob("*.py")
        if re.search(r"from rich(\.console)? import (Console|print)", path.read_text())
    ]
    assert {path.name for path in found} <= own


def test_logs_warnings_and_mistakes_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    evil = "a\x1b[2J\u202eb"
    handler = logging.StreamHandler(sys.stderr)
    log = logging.getLogger("pcnn.of_a_test")
    log.addHandler(handler)
    before = warnings.formatwarning
    with escaped_output():
        log.warning("%s is bad", evil)
        print(warnings.formatwarning(evil, UserWarning, "file", 1), file=sys.stderr)
        say(evil, error=True)
    log.removeHandler(handler)
    assert warnings.formatwarning is before
    said = capsys.readouterr().err
    assert said.count(visible(evil)) == 3
    assert "\x1b" not in said
    assert "file" not in said
    done = CliRunner().invoke(app, ["register", f"/{evil}", "b"])
    assert visible(evil) in done.output
    assert "\x1b" not in done.output


def test_programs_print_by_these_two_modules_alone() -> None:
    root = Path(__file__).parents[1] / "pcnn"
    found = [
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        if re.search(r"(?<![\w.])(typer\.echo|print)\(", path.read_text())
    ]
    # the package's own command says that it was stopped before anything is imported
    assert sorted(found) == ["cli/__init__.py", "messages.py"]


def test_work_without_a_terminal_is_told_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pcnn.console.FIRST", 0.05)
    monkeypatch.setattr("pcnn.console.EVERY", 0.05)
    file = io.StringIO()
    with Progress(Console(file=file), "registering", 40, lambda: "recall 50.0 %") as progress:
        time.sleep(0.08)
        progress.advance(10)
        time.sleep(0.1)
    lines = file.getvalue().splitlines()
    assert lines[0].startswith("registering: 0 of 40")
    assert re.fullmatch(r"registering: 10 of 40, recall 50.0 %, \d+:\d\d left", lines[-1])
    time.sleep(0.1)
    assert len(file.getvalue().splitlines()) == len(lines)
