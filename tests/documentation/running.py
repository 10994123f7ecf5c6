"""Blocks of a page run in one folder, in their order, and print what the page shows."""

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
from pathlib import Path
from typing import Any

from pcnn.cli import main
from tests.documentation.blocks import ROOT, Block

#: Output is compared word by word; ``...`` stands for anything.
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
#: Bars of progress, and what moves the cursor of a terminal.
PASSING = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\r|^.*?[━╸╺]{10,} +\d+/\d+ .*\n", re.MULTILINE)


class Page:
    """A folder, and the names that the Python blocks of a page have made so far."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names: dict[str, Any] = {"__name__": "__main__"}

    def run(self, block: Block) -> str:
        """Run a block; returns what it prints.

        Raises:
            AssertionError: a command fails.
        """
        if block.file:
            path = self.folder / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.code)
            return ""
        printed = io.StringIO()
        with moved(self.folder):
            if block.language == "python":
                with contextlib.redirect_stdout(printed):
                    exec(compile(block.code, block.name, "exec"), self.names)
            elif block.language == "bash" and block.mark == "ci":
                for words in commands(block.code):
                    printed.write(command(words, block.name))
            elif block.language == "bash":
                printed.write(shell(block.code, block.name))
            else:
                raise AssertionError(f"{block.name}: {block.language} does not run by itself")
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


def commands(code: str) -> list[list[str]]:
    """Words of the commands of a block, without comments."""
    lines = code.replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def command(words: list[str], name: str) -> str:
    """Run one command in this process: torch is imported once for all pages."""
    printed, given, code = io.StringIO(), sys.argv, 0
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            if words[0] == "pcnn":
                sys.argv = words
                main()
            elif words[0] == "python":
                sys.argv = words[1:]
                runpy.run_path(words[1], run_name="__main__")
            else:
                raise AssertionError(
                    f"{name}: {words[0]} is no command that runs in every test run"
                )
    except SystemExit as stopped:
        code = stopped.code if isinstance(stopped.code, int) else int(stopped.code is not None)
    finally:
        sys.argv = given
    assert code == 0, f"{name}: {shlex.join(words)} ended with {code}\n{printed.getvalue()}"
    return printed.getvalue()


def shell(code: str, name: str) -> str:
    """Run a block by bash, with the programs of this environment and this tree."""
    bin_folder = Path(sys.executable).parent
    start = f'pcnn() {{ {sys.executable} -c "from pcnn.cli import main; main()" "$@"; }}\n'
    links = f"ln -sf {ROOT}/train.py {ROOT}/eval.py .\n"
    environment = os.environ | {
        "PATH": f"{bin_folder}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run(
        ["bash", "-euc", start + links + code],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, f"{name} ended with {done.returncode}\n{done.stdout}"
    return done.stdout


def agrees(shown: str, printed: str) -> bool:
    """True if a page shows what was printed."""
    return doctest.OutputChecker().check_output(shown, printed, OPTIONS)
