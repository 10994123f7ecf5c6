"""Notebooks, written as Python files whose comments ``# %%`` begin cells."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

CELL = re.compile(r"^# %%(.*)$", re.MULTILINE)


def cells(text: str) -> Iterator[tuple[str, str]]:
    """The cells of a file: ``markdown`` or ``code``, and their text."""
    parts = CELL.split(text)[1:]
    for head, body in zip(parts[::2], parts[1::2], strict=True):
        if "markdown" in head:
            lines = (re.sub("^# ?", "", line) for line in body.strip().splitlines())
            yield "markdown", "\n".join(lines)
        else:
            yield "code", body.strip()


def page(text: str, name: str) -> str:
    """The notebook as a page in Markdown, with a link to its file."""
    parts = [
        text if kind == "markdown" else f"```python\n{text}\n```" for kind, text in cells(text)
    ]
    link = f"[This page as a notebook]({name}.ipynb), to be opened in Jupyter."
    return "\n\n".join([*parts, link]) + "\n"


def notebook(text: str) -> str:
    """The notebook as Jupyter reads it, without outputs."""
    made = []
    for number, (kind, source) in enumerate(cells(text)):
        cell = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": source}
        made.append(cell | ({"execution_count": None, "outputs": []} if kind == "code" else {}))
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    whole = {"cells": made, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1) + "\n"
