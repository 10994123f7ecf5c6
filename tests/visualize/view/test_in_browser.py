"""The page of `pcnn view` in a browser: it draws, and clicks and keys do what they say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pcnn.visualize.palette import WRONG
from pcnn.visualize.view import View, ViewedCloud
from tests.browser import Browser, installed

pytestmark = pytest.mark.skipif(installed() is None, reason="no Chromium (make browser)")

STATUS = "document.getElementById('status').textContent"
CENTRE = (740, 350)  # of the part of the window that the panel leaves free


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    found = Browser(tmp_path_factory.mktemp("profile"))
    yield found
    found.close()


@pytest.fixture(scope="module")
def scene() -> ViewedCloud:
    """A floor on a map with a wall; the wall is taken for floor."""
    rng = np.random.default_rng(0)
    points = rng.uniform(0, 20, (6000, 3)) * [1, 1, 0]
    points[4000:, 1], points[4000:, 2] = 15, rng.uniform(0, 6, 2000)
    truth = np.repeat([0, 1], [4000, 2000])
    places = np.round(points + np.array([412_345, 5_412_345, 812]), 3)
    labels = {"prediction": np.zeros(6000, int), "truth": truth}
    return ViewedCloud("a.las", places, labels=labels, confidence=rng.random(6000))


@pytest.fixture(scope="module")
def view(scene: ViewedCloud, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return View([scene], ("floor", "wall")).write(tmp_path_factory.mktemp("view") / "v.html")


@pytest.fixture
def page(browser: Browser, view: Path) -> Browser:
    browser.open(view)
    browser.until(STATUS)
    return browser


def pixels(page: Browser) -> np.ndarray:
    """The picture [rows, columns, 3] 0..255, beside the panel and above the line of numbers."""
    rest(page)
    return page.pixels()[10:650, 290:1190]


def rest(page: Browser) -> None:
    """Wait until nothing moves and the last frame is drawn."""
    page.value("new Promise((done) => setTimeout(() => requestAnimationFrame(done), 250))")


def of_colour(image: np.ndarray, colour: tuple[int, int, int]) -> int:
    return int((np.abs(image - colour).max(axis=2) <= 2).sum())


def drawn(image: np.ndarray) -> int:
    return int((np.abs(image - image[0, -1]).max(axis=2) > 8).sum())


def switch(page: Browser, name: str) -> None:
    """Click the switch or the choice with a name."""
    page.value(
        "[...document.querySelectorAll('label')].find((one) => "
        f"one.querySelector('.name')?.textContent === '{name}').querySelector('input').click()"
    )


def values(page: Browser) -> dict[str, str]:
    rows = page.value(
        "[...document.querySelectorAll('#picked tr')].map((row) => "
        "[...row.children].map((cell) => cell.textContent))"
    )
    return dict(rows)


def test_layers_and_classes_are_switched(page: Browser) -> None:
    assert page.value(STATUS) == "6,000 points"
    assert drawn(pixels(page)) > 5000
    switch(page, "errors")
    errors = pixels(page)
    assert of_colour(errors, WRONG) > 500
    switch(page, "wrong")
    hidden = pixels(page)
    assert of_colour(hidden, WRONG) == 0
    assert 0 < drawn(hidden) < drawn(errors)
    page.press("2")  # the truth
    counts = page.value(
        "[...document.querySelectorAll('#legend .count')].map((one) => one.textContent)"
    )
    assert counts == ["4,000", "2,000"]
    page.value("[...document.querySelectorAll('.all button')].at(-1).click()")
    assert drawn(pixels(page)) == 0
    for layer in ("height", "confidence", "points"):
        switch(page, layer)
        assert drawn(pixels(page)) > 5000, layer
    assert page.complaints() == []


def test_a_click_shows_the_values_of_the_file(page: Browser, scene: ViewedCloud) -> None:
    page.press("t")
    rest(page)
    page.click(*CENTRE)
    found = values(page)
    row = int(found["row"])
    assert [found[axis] for axis in "xyz"] == [f"{v:.15g}" for v in scene.points[row]]
    assert np.abs(scene.points[row, :2] - [412_355, 5_412_355]).max() < 2
    assert found["prediction"] == "floor"
    assert found["truth"] == ("floor" if row < 4000 else "wall")
    assert scene.confidence is not None
    assert abs(float(found["confidence"]) - scene.confidence[row]) < 1e-3
    page.press("Escape")
    assert page.value("document.getElementById('picked').hidden")
    assert page.complaints() == []


def test_a_pair_is_shown_as_given_and_as_registered(browser: Browser, tmp_path: Path) -> None:
    pose = np.eye(4)
    pose[0, 3] = 500.0
    grid = np.stack(np.meshgrid(np.arange(60.0), np.arange(60.0), [0.0]), -1).reshape(-1, 3)
    moved = ViewedCloud("a", grid, pose=pose, color=(255, 0, 0), simulated=True)
    path = View([moved, ViewedCloud("b", grid + pose[:3, 3])]).write(tmp_path / "p.html")
    browser.open(path)
    browser.press("t")
    switch(browser, "b")
    assert of_colour(pixels(browser), (255, 0, 0)) > 1000
    assert browser.value(STATUS) == "3,600 points"
    switch(browser, "registered")
    assert of_colour(pixels(browser), (255, 0, 0)) == 0
    browser.value("document.getElementById('fold').click()")
    mark = browser.value("document.getElementById('simulated').innerText")
    assert mark == "SIMULATED DATA: a", "also where the panel is folded"
    browser.value("document.getElementById('fold').click()")
    assert browser.complaints() == []
