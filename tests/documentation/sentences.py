"""Sentences of a page in Markdown, and their numbers of words."""

from __future__ import annotations

import re

CUT = re.compile(
    r"^ *```.*?^ *```$"  # code
    r"|<!--.*?-->"
    r"|\n\n(?: {4}[^\n]*\n)+"  # indented code
    r"|^\|[^\n]*$"  # rows of tables
    r"|^#[^\n]*$"
    r"|!\[[^]]*\]\([^)]*\)",
    re.DOTALL | re.MULTILINE,
)
LINK = re.compile(r"\[((?:[^][]|\[[^]]*\])*)\]\([^)]*\)")
CODE = re.compile(r"``[^`]+``|`[^`]+`")
ITEM = re.compile(r"^ *(?:[-*]|\d+\.) +", re.MULTILINE)
END = re.compile(r"(?<=[.!?])[)*_\"]*\s+(?=[A-Z`*(\"\[]|\d)|(?<=[:;])\s+(?=\n)")
#: Points that end no sentence.
SHORT = re.compile(r"\b(?:e\.g|i\.e|vs|cf|Eq|Fig|Sec|approx|No)\.(?= )")


def sentences(text: str) -> list[str]:
    """The sentences of a page: of paragraphs and items of lists, without code and tables."""
    text = CUT.sub("\n\n", text)
    text = LINK.sub(r"\1", text)
    text = CODE.sub("Code", text)  # however long, a name is one word, and may begin a sentence
    text = SHORT.sub(lambda found: found[0].replace(".", ""), text)
    found = []
    for paragraph in re.split(r"\n\s*\n|\n(?= *(?:[-*]|\d+\.) )", text):
        words = " ".join(ITEM.sub("", paragraph).split())
        found += [sentence for sentence in END.split(words) if re.search(r"\w", sentence)]
    return found


def words(sentence: str) -> int:
    """The number of words: what has a letter or a digit."""
    return sum(bool(re.search(r"\w", word)) for word in sentence.split())
