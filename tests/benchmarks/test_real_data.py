"""The tables of figures on real data follow from what was counted."""

from __future__ import annotations

import json

import pytest
import torch

from benchmarks import real_figures


def test_the_tables_of_the_page_follow_from_what_was_counted() -> None:
    found = json.loads(real_figures.FILE.read_text())
    page = real_figures.FILE.with_suffix(".md").read_text()
    for name, rows in real_figures.TABLES.items():
        assert rows(found) == found["tables"][name]
        assert real_figures.table(rows(found)) in page
    run = found["runs"]["streets_100_0"]["single"]
    counts = torch.tensor(list(run["counts"].values())).sum(0)  # [3, C]
    right, truth, said = counts.double()
    there = truth > 0
    iou = right[there] / (truth + said - right)[there]
    assert 100 * float(iou.mean()) == pytest.approx(run["miou_present"], abs=0.01)
