"""Blocks of code of the documentation: those with a mark run, of the others commands must exist.

A mark is a comment on the line before a block, which readers do not see: ``<!-- ci -->`` runs in
every test run, ``<!-- nightly -->`` with ``--slow``, ``<!-- gpu -->`` where there is a GPU.
``file=NAME`` in a mark writes the block to that file. ``<!-- output -->`` marks the block with what
the one before it prints; ``...`` stands for what differs from run to run.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pcnn.cli import main

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(
    r"^(?:<!-- (?P<mark>ci|nightly|gpu|output)(?: file=(?P<file>\S+))? -->\n)?"
    r" *```(?P<language>\w*)\n(?P<code>.*?)^ *```$",
    re.DOTALL | re.MULTILINE,
)
#: Bars of progress, and what moves the cursor of a terminal.
PASSING = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\r|^.*?[━╸╺]{10,} +\d+/\d+ .*\n", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    name: str  # page:line
    mark: str
    file: str
    language: str
    code: str


@cache
def pages() -> dict[str, list[Block]]:
    """The blocks of every page, by its path in the checkout."""
    files = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    found = {}
    for path in files:
        page, text = str(path.relative_to(ROOT)), path.read_text()
        found[page] = [
            Block(
                f"{page}:{text.count(chr(10), 0, match.start('code'))}",
                *(match[part] or "" for part in ("mark", "file", "language", "code")),
            )
            for match in FENCE.finditer(text)
        ]
    return found


def commands(code: str) -> list[list[str]]:
    """Words of the commands of a block, without comments; a command may take several lines."""
    lines = [step for line in code.replace("\\\n", " ").splitlines() for step in line.split("&&")]
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def shown_commands() -> list[tuple[str, list[str]]]:
    """Every command of the documentation, with its place."""
    return [
        (block.name, [word for word in words if word != "PYTHONPATH=."])
        for blocks in pages().values()
        for block in blocks
        if block.language == "bash"
        for words in commands(block.code)
    ]


class Runner:
    """A folder, and the names that the Python blocks of a page have made so far."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names: dict[str, Any] = {"__name__": "__main__"}

    def run(self, block: Block) -> str:
        """What a block prints."""
        if block.file:
            (self.folder / block.file).write_text(block.code)
            return ""
        printed = io.StringIO()
        with moved(self.folder), contextlib.redirect_stdout(printed):
            if block.language == "python":
                exec(compile(block.code, block.name, "exec"), self.names)
            elif block.mark == "ci":
                for words in commands(block.code):
                    command(words, block.name)
            else:
                print(shell(block.code, block.name))
        return PASSING.sub("", printed.getvalue())


@contextlib.contextmanager
def moved(folder: Path) -> Iterator[None]:
    """Work in a folder; `contextlib.chdir` is not in Python 3.10."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def command(words: list[str], name: str) -> None:
    """Run one command in this process: torch is imported once for all pages."""
    given, code = sys.argv, 0
    try:
        if words[0] == "pcnn":
            sys.argv = words
            main()
        else:
            sys.argv = words[1:]
            runpy.run_path(words[1], run_name="__main__")
    except SystemExit as stopped:
        code = stopped.code if isinstance(stopped.code, int) else int(stopped.code is not None)
    finally:
        sys.argv = given
    assert code == 0, f"{name}: {shlex.join(words)} ended with {code}"


def shell(code: str, name: str) -> str:
    """Run a block by bash, with the programs of this environment and this tree."""
    start = f'pcnn() {{ {sys.executable} -c "from pcnn.cli import main; main()" "$@"; }}\n'
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euc", start + code],
        env=os.environ | {"PATH": path, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, f"{name} ended with {done.returncode}\n{done.stdout}"
    return done.stdout


def agrees(shown: str, printed: str) -> bool:
    """True if a page shows what was printed."""
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    return doctest.OutputChecker().check_output(shown, printed, options)
