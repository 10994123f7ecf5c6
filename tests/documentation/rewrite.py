"""`make docs-output`: write what the blocks of the documentation print into its pages."""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from tests.documentation.blocks import blocks_of, pages
from tests.documentation.running import Page, agrees


def rewritten(page: str, text: str, marks: tuple[str, ...]) -> str:
    """The text of a page with the output of a run; what agrees, with ``...``, stays as it is."""
    changed: list[tuple[tuple[int, int], str]] = []
    with tempfile.TemporaryDirectory() as folder:
        place = Page(Path(folder))
        for block in blocks_of(page, text):
            if block.mark not in marks or block.test:
                continue
            printed = place.run(block)
            if block.output is not None and not agrees(block.output, printed):
                lines = [line.rstrip() for line in printed.strip("\n").splitlines()]
                changed.append((block.place, "\n".join(lines) + "\n"))
    for (start, end), output in reversed(changed):
        text = text[:start] + output + text[end:]
    return text


def main() -> None:
    """Rewrite the pages that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", nargs="*", help="addresses on the site; default: all")
    parser.add_argument("--nightly", action="store_true", help="also run blocks of minutes")
    given = parser.parse_args()
    os.environ |= {"COLUMNS": "80", "TERM": "dumb", "WANDB_MODE": "offline"}
    for page, path in pages().items():
        if given.pages and page not in given.pages:
            continue
        before = path.read_text()
        marks = ("ci", "nightly") if given.nightly else ("ci",)
        after = rewritten(page, before, marks)
        if after != before:
            path.write_text(after)
            print(f"written: {path}")


if __name__ == "__main__":
    main()
