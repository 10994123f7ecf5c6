"""Blocks of code in the documentation, each with its mark.

A mark is a comment on the line before a block, which readers do not see:

``<!-- ci -->``               runs in every test run, in the order of the page
``<!-- nightly -->``          runs with ``--slow``: minutes of work
``<!-- gpu -->``              runs where there is a GPU
``<!-- not-run: reason -->``  is shown; only its commands and options are looked at
``<!-- ci by: FILE -->``      that test runs it

``file=NAME`` in a mark (``<!-- ci file=tiles.py -->``) writes the block to that file, and runs it
only where a later block does. ``<!-- output -->`` marks the block that shows what the block before
it prints; ``...`` stands for what differs from run to run.
"""

from __future__ import annotations

import re
import runpy
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MARK = re.compile(r"<!-- (ci|nightly|gpu|not-run|output)(?: file=(\S+)| by: (\S+)|: (.+?))? -->\n?")
FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)\n(?P<code>.*?)^ *```$", re.DOTALL | re.M)
#: Languages of blocks that are no code: drawings of folders, and what programs print.
SHOWN = ("", "text")


@dataclass(frozen=True)
class Block:
    """A block of code.

    Args:
        page: address of the page on the site.
        line: line of the page where it begins.
        language: after the fence.
        code: what it holds.
        mark: ``ci``, ``nightly``, ``gpu``, ``not-run``, or nothing.
        file: name under which it is written before it runs, or nothing.
        test: file of the test that runs it, or nothing.
        reason: why it does not run, or nothing.
        output: what the page shows as its output, or None.
        place: where that output stands in the page's text.
    """

    page: str
    line: int
    language: str
    code: str
    mark: str
    file: str
    test: str
    reason: str
    output: str | None
    place: tuple[int, int]

    @property
    def name(self) -> str:
        """Page and line."""
        return f"{self.page}:{self.line}"


@cache
def pages() -> dict[str, Path]:
    """Every page of the site: its address, and its file."""
    return runpy.run_path(str(ROOT / "docs/site/pages.py"))["sources"]()


def blocks_of(page: str, text: str) -> list[Block]:
    """The blocks of a page, without those that show output."""
    found: list[Block] = []
    fences = list(FENCE.finditer(text))
    marks = [mark_before(text, fence.start()) for fence in fences]
    for index, (fence, mark) in enumerate(zip(fences, marks, strict=True)):
        if mark is not None and mark[1] == "output":
            continue
        output, place = None, (0, 0)
        if index + 1 < len(fences):
            after = marks[index + 1]
            if after is not None and after[1] == "output":
                output, place = fences[index + 1]["code"], fences[index + 1].span("code")
        kind, file, test, reason = mark.groups(default="") if mark else ("", "", "", "")
        line = text.count("\n", 0, fence.start()) + 1
        code, language = fence["code"], fence["language"]
        found.append(Block(page, line, language, code, kind, file, test, reason, output, place))
    return found


def mark_before(text: str, start: int) -> re.Match[str] | None:
    """The mark on the line before a place."""
    before = text.rfind("\n", 0, max(start - 1, 0)) + 1
    return MARK.fullmatch(text, before, start)


@cache
def all_blocks() -> list[Block]:
    """The blocks of every page."""
    return [block for page, path in pages().items() for block in blocks_of(page, path.read_text())]
