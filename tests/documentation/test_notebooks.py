"""The notebooks run from their first cell to their last."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

from tests.documentation.blocks import ROOT

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.py"))
PROGRAM = runpy.run_path(str(ROOT / "docs" / "site" / "notebooks.py"))


def test_the_notebooks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One kernel runs them in turn, each with names of its own: torch is imported once."""
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("MPLBACKEND", "agg")
    whole = nbformat.v4.new_notebook()
    for path in NOTEBOOKS:
        one = nbformat.reads(PROGRAM["notebook"](path.read_text()), as_version=4)
        whole.cells += [cell for cell in one.cells if cell.cell_type == "code"]
        whole.cells.append(nbformat.v4.new_code_cell("%reset -f"))
    done = nbclient.NotebookClient(
        whole, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    printed = "".join(
        output.get("text", "") for cell in done.cells for output in cell.get("outputs", [])
    )
    assert printed.count("the same values") == 4
    assert "rotation error" in printed


def test_notebooks_are_cut_into_cells() -> None:
    text = "# %% [markdown]\n# # Title\n#\n# Words.\n\n# %%\nx = 1\n\n# %%\nprint(x)\n"
    assert list(PROGRAM["cells"](text)) == [
        ("markdown", "# Title\n\nWords."),
        ("code", "x = 1"),
        ("code", "print(x)"),
    ]
    kinds = [cell["cell_type"] for cell in json.loads(PROGRAM["notebook"](text))["cells"]]
    assert kinds == ["markdown", "code", "code"]
    assert "```python\nx = 1\n```" in PROGRAM["page"](text, "a")
