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
import shlex
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

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


def run(block: Block, names: dict[str, Any]) -> str:
    """What a block prints; ``names`` are those of the Python blocks before it."""
    printed = io.StringIO()
    if block.file:
        Path(block.file).write_text(block.code)
    elif block.language == "python":
        with contextlib.redirect_stdout(printed):
            exec(compile(block.code, block.name, "exec"), names)
    else:
        printed.write(shell(block.code, block.name))
    return PASSING.sub("", printed.getvalue())


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
