"""The text of the documentation: figures with a source, and sentences that are quickly read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.documentation.blocks import ROOT, pages
from tests.documentation.figures import absent, unsupported
from tests.documentation.sentences import sentences, words

#: Pages of text. The changelog lists changes, whose measurements are on the other pages.
TEXTS = {address: path for address, path in pages().items() if address != "changes.md"}


@pytest.mark.parametrize("page", TEXTS)
def test_measured_figures_name_their_file(page: str) -> None:
    assert not unsupported(TEXTS[page].read_text())
    assert absent(TEXTS[page], ROOT) == []


def test_a_figure_without_a_file_is_found() -> None:
    page = """# Speed

## Layers

A layer takes 0.3 ms on an H200, and 5 to 7 % of the memory.

## Networks

A network takes 4 ms (`benchmarks/results/networks-h200.json`).

<!-- no figure: a setting -->

A rank is lost after 60 s.
"""
    (claim,) = unsupported(page)
    assert claim.section == "## Layers"
    assert claim.figures == ("0.3 ms", "5 to 7 %")
    assert unsupported("In files (`docs/results/a.json`).\n\n## One\n\n3 ms\n") == []


@pytest.mark.parametrize("path", TEXTS.values(), ids=TEXTS)
def test_sentences_are_short(path: Path) -> None:
    found = sentences(path.read_text())
    lengths = [words(sentence) for sentence in found]
    assert sum(lengths) <= 25 * len(lengths)
    assert [sentence for sentence in found if words(sentence) > 40] == []


def test_sentences_are_told_apart() -> None:
    text = """# Title of the page

The layers of `pcnn.nn` (see [the page](a.md)) are quick. `auto` is the default; it serves all.

* one item of a list
* another item. It has two sentences!

| a table | is no sentence |
|---|---|

```python
x = 1  # nor is code. At all.
```
"""
    assert [words(sentence) for sentence in sentences(text)] == [9, 7, 5, 2, 4]
