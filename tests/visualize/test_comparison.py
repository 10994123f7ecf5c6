from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pcnn.metrics.registration import compare, protocol
from pcnn.visualize.comparison import comparison_picture, short_names
from tests.metrics.registration.two_methods import failed, runs

pytest.importorskip("matplotlib")

INDOOR = protocol("predator", "threedmatch")
LONG = "a network of a very long name, on native points", "a network of a very long name, on voxels"


def drawn(path: Path, monkeypatch: pytest.MonkeyPatch, *given: Any, names: Any) -> Any:
    """The figure that was saved."""
    from matplotlib.figure import Figure

    held = []
    save = Figure.savefig

    def kept(figure: Figure, *args: Any, **options: Any) -> None:
        held.append(figure)
        save(figure, *args, **options)

    monkeypatch.setattr(Figure, "savefig", kept)
    comparison_picture(compare(*given, INDOOR, names, draws=100), path, "title")
    return held[0]


@pytest.mark.parametrize(
    ("case", "names"), [("several", LONG), ("one", ("points", "voxels")), ("none", LONG)]
)
def test_nothing_overlaps_and_all_axes_are_labelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str, names: tuple[str, str]
) -> None:
    number = 3 if case == "several" else 1
    second = [failed()] if case == "none" else runs(2, 0.4, 2)
    given = runs(number, 0.8, 1), second
    figure = drawn(tmp_path / "new" / "gain.png", monkeypatch, *given, names=names)
    assert (tmp_path / "new" / "gain.png").stat().st_size > 20_000
    page = figure.bbox
    assert len(figure.axes) == 5
    (legend,) = figure.legends
    boxes = [legend.get_window_extent()]
    for place in figure.axes:
        assert "[" in place.get_xlabel()  # its unit
        boxes.append(place.get_tightbbox())
    for box in boxes:
        assert 0 <= box.x0 < box.x1 <= page.x1
        assert 0 <= box.y0 < box.y1 <= page.y1
    for at, box in enumerate(boxes):
        for other in boxes[at + 1 :]:
            apart = min(box.x1, other.x1) - max(box.x0, other.x0) <= 1
            assert apart or min(box.y1, other.y1) - max(box.y0, other.y0) <= 1
    bands = figure.axes[0].collections
    assert len(bands) == (case == "several") + (case != "none")
    said = " ".join(text.get_text() for place in figure.axes for text in place.texts)
    assert ("nothing to compare" in said) == (case == "none")


def test_svg_and_no_other_format(tmp_path: Path) -> None:
    found = compare(runs(2, 0.8, 1), runs(2, 0.5, 2), INDOOR, LONG, draws=50)
    first, second = short_names(LONG)
    assert first != second
    assert max(len(first), len(second)) <= 28
    path = comparison_picture(found, tmp_path / "a.svg", "title")
    before = path.read_bytes()
    assert b"<svg" in before
    assert comparison_picture(found, path, "title").read_bytes() == before
    with pytest.raises(ValueError, match=r"written as \.png or \.svg"):
        comparison_picture(found, tmp_path / "a.pdf", "title")
    assert not (tmp_path / "a.pdf").exists()
