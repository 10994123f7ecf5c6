"""Names of files are printed as they are, whatever they hold."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.table import Table

from pcnn.console import Console, plain, visible

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
