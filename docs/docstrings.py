"""Docstrings as Markdown: brackets of shapes and units are text, never links."""

from __future__ import annotations

import re
from typing import Any

import griffe

#: ``[N, 3] [m]`` would be a link of Markdown, from a text to a reference.
PAIR = re.compile(r"\](\s?)\[")


class Brackets(griffe.Extension):
    """Escape what Markdown would read as a link."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rewrite one docstring, outside its pieces of code."""
        if obj.docstring is not None:
            pieces = re.split(r"(`+[^`]*`+)", obj.docstring.value)
            pieces[::2] = [PAIR.sub(r"]\1\\[", piece) for piece in pieces[::2]]
            obj.docstring.value = "".join(pieces)
