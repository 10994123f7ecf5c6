"""Measured figures in the prose of the documentation, and the files that hold them.

A measured figure is a number with a unit of time, memory or share, or a ratio of speeds. It has a
source where a committed JSON file is named in the same section, or in front of the first section of
the page. ``<!-- no figure: REASON -->`` above a paragraph says that its numbers are settings, or
those of others; ``<!-- no figure in this section: REASON -->`` says so of a whole section, as of a
plan on paper.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

FIGURE = re.compile(
    r"(?<![\w.=/-])\d[\d,.]*(?: to \d[\d.,]*)? ?"
    r"(?:ms|µs|us|s|minutes?|seconds?|h|%|GB|MB|kB|GiB|MiB|times (?:as|the|faster|quicker))"
    r"(?![\w/])"
)
SOURCE = re.compile(r"[\w./-]+\.json")
REASON = re.compile(r"<!-- no figure: (.+?) -->")
SECTION = re.compile(r"<!-- no figure in this section: (.+?) -->")
FENCE = re.compile(r"^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"`[^`\n]+`")


@dataclass(frozen=True)
class Claim:
    """A paragraph or table with measured figures that has no source."""

    section: str
    text: str
    figures: tuple[str, ...]


def unsupported(text: str) -> list[Claim]:
    """The paragraphs of a page whose figures have no source."""
    text = FENCE.sub("", text)
    parts = re.split(r"^(##+ .*)$", text, flags=re.MULTILINE)
    introduction = SOURCE.search(parts[0]) is not None
    found = []
    for heading, body in zip(["", *parts[1::2]], parts[::2], strict=True):
        if introduction or SOURCE.search(body) or SECTION.search(body):
            continue
        paragraphs = re.split(r"\n\s*\n", body)
        for before, paragraph in zip(["", *paragraphs], paragraphs, strict=False):
            figures = tuple(match[0] for match in FIGURE.finditer(CODE.sub("", paragraph)))
            if figures and not (REASON.search(before) or REASON.search(paragraph)):
                found.append(Claim(heading, " ".join(paragraph.split()), figures))
    return found


def sources(text: str) -> set[str]:
    """The JSON files in folders of results that a page names."""
    return {name for name in SOURCE.findall(text) if "results/" in name}


def absent(page: Path, root: Path) -> list[str]:
    """Named files of results that are nowhere in the checkout."""
    folders = (root, page.parent, root / "docs")
    return [
        name
        for name in sorted(sources(page.read_text()))
        if not any((folder / name).is_file() for folder in folders)
    ]
