"""Every block of code in the documentation has a mark, and runs where its mark says."""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path

import pytest

from tests.documentation.blocks import ROOT, SHOWN, Block, all_blocks, blocks_of, pages
from tests.documentation.running import Page, agrees

MARKS = ("ci", "nightly", "gpu")


def of_pages(*marks: str) -> list[list[Block]]:
    """The blocks that run by these marks, page by page."""
    chosen = [block for block in all_blocks() if block.mark in marks and not block.test]
    return [list(group) for _, group in groupby(chosen, key=lambda block: block.page)]


def of_mark(mark: str) -> list[list[Block]]:
    """Blocks of the pages that have this mark, with those that pages run before them."""
    before = MARKS[: MARKS.index(mark) + 1] if mark != "gpu" else ("ci", "gpu")
    return [page for page in of_pages(*before) if any(block.mark == mark for block in page)]


def check(page: list[Block], folder: Path) -> None:
    place = Page(folder)
    for block in page:
        printed = place.run(block)
        if block.output is not None:
            assert agrees(block.output, printed), (
                f"{block.name} prints what the page does not show: make docs-output\n{printed}"
            )


def test_every_block_is_marked() -> None:
    for block in all_blocks():
        if block.language in SHOWN:
            assert not block.mark, f"{block.name}: a block of text does not run"
            continue
        assert block.mark, f"{block.name}: <!-- ci, nightly, gpu or not-run: reason --> before it"
        assert (block.mark == "not-run") == bool(block.reason), f"{block.name}: not-run: reason"
        if block.test:
            test = ROOT / block.test
            assert Path(block.page).stem in test.read_text(), f"{block.name}: {test} reads no page"


def test_no_mark_is_misspelt() -> None:
    """A comment that is no mark would leave the block below it without one."""
    for page, path in pages().items():
        for comment in re.findall(r"^<!--(.*?)-->\n *```", path.read_text(), re.MULTILINE):
            word = re.match(r" *([\w-]+)", comment)
            assert word, f"{page}: {comment}"
            assert word[1] in (*MARKS, "not-run", "output"), f"{page}: {comment}"


def test_blocks_are_read_with_marks_and_output() -> None:
    text = """# Title
<!-- ci -->
```python
print(1)
```

<!-- output -->
```text
1
```

<!-- not-run: needs a scan -->
```bash
pcnn predict
```
<!-- ci file=a/b.yaml -->
```yaml
x: 1
```
```bash
pcnn doctor
```
"""
    first, second, third, fourth = blocks_of("page.md", text)
    assert (first.mark, first.output, first.line) == ("ci", "1\n", 3)
    assert text[slice(*first.place)] == "1\n"
    assert (second.mark, second.reason, second.output) == ("not-run", "needs a scan", None)
    assert (third.mark, third.file) == ("ci", "a/b.yaml")
    assert (fourth.mark, fourth.code) == ("", "pcnn doctor\n")


def name(page: list[Block]) -> str:
    return page[0].page


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal of 80 columns without colours, and no login of any service."""
    for variable, value in (("COLUMNS", "80"), ("TERM", "dumb"), ("WANDB_MODE", "offline")):
        monkeypatch.setenv(variable, value)


@pytest.mark.parametrize("page", of_mark("ci"), ids=name)
def test_blocks_run(page: list[Block], tmp_path: Path) -> None:
    check(page, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("page", of_mark("nightly"), ids=name)
def test_long_blocks_run(page: list[Block], tmp_path: Path) -> None:
    check(page, tmp_path)


@pytest.mark.gpu
@pytest.mark.parametrize("page", of_mark("gpu"), ids=name)
def test_blocks_run_on_a_gpu(page: list[Block], tmp_path: Path) -> None:
    check(page, tmp_path)
