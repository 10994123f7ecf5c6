"""The page of `pcnn view` as a file: what it holds, and that nothing in it leaves it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pcnn.visualize.view.page as page
from pcnn.visualize.view import View, ViewedCloud
from pcnn.visualize.view.cloud import Places

ROOT = Path(__file__).resolve().parents[3]
NAMES = ("road", "car")
EVIL = 'a</script><img src="http://x.y/z" onerror="alert(1)">\x1b[31m&.bin'


class Elements(HTMLParser):
    """Tags with their attributes, and the text of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._inside = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.texts.append("")
        self._inside = True

    def handle_endtag(self, tag: str) -> None:
        self._inside = False

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.texts[-1] += data

    def named(self, tag: str) -> list[tuple[dict[str, str | None], str]]:
        return [(a, t) for (n, a), t in zip(self.tags, self.texts, strict=True) if n == tag]


def held(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The data of a page, as its program reads them."""
    kinds = {"f4": "<f4", "u1": "u1", "u2": "<u2", "u4": "<u4"}
    content, arrays = {}, {}
    for attributes, text in Elements(path.read_text()).named("script"):
        if attributes.get("type") == "application/json":
            content = json.loads(text)
        elif "data-kind" in attributes:
            raw = base64.b64decode(text, validate=True)
            arrays[str(attributes["id"])] = np.frombuffer(raw, kinds[str(attributes["data-kind"])])
    return content, arrays


def cloud(points: np.ndarray, **more: Any) -> ViewedCloud:
    return ViewedCloud(more.pop("name", "a.bin"), points, **more)


def test_every_value_comes_back_in_one_order(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    points = rng.normal(size=(500, 3)).astype(np.float32)
    pred, truth = rng.integers(0, 2, 500), rng.choice([0, 1, 255], 500)
    rgb = rng.integers(0, 256, (500, 3)).astype(np.uint8)
    one = cloud(
        points,
        rows=np.arange(500) + 7,
        intensity=points[:, 0],
        rgb=rgb,
        labels={"prediction": pred, "truth": truth},
        confidence=np.linspace(0, 1, 500),
    )
    content, arrays = held(View([one], NAMES).write(tmp_path / "v.html"))
    (shown,) = content["clouds"]
    found = {name: arrays[array] for name, array in (shown["arrays"] | shown["labels"]).items()}
    rows = found["rows"].astype(int) - 7
    assert sorted(rows) == list(range(500))
    assert not np.array_equal(rows, np.arange(500)), "a prefix would be no even choice"
    assert np.array_equal(found["places"].reshape(-1, 3), points[rows])
    assert np.array_equal(found["intensity"], points[rows, 0])
    assert np.array_equal(found["rgb"].reshape(-1, 3), rgb[rows])
    assert np.array_equal(found["prediction"], pred[rows])
    assert np.array_equal(found["truth"], np.where(truth[rows] == 255, 2, truth[rows]))
    assert [one["name"] for one in content["classes"]] == [*NAMES, "no class"]
    assert content["first"] == "prediction"
    assert "rest" not in found


def read_back(places: Places) -> np.ndarray:
    """Coordinates as the page writes them (`coordinates` in picking.js)."""
    found = places.origin + places.near.astype(np.float64)
    if places.decimals is not None:
        return np.round(found, places.decimals)
    if places.rest is None:
        return found
    return places.origin + (places.near + places.rest.astype(np.float64))


@pytest.mark.parametrize("offset", [0.0, 5_412_345.0])
def test_coordinates_keep_all_their_digits(offset: float) -> None:
    values = np.random.default_rng(1).uniform(-200, 200, (400, 3))
    metres = offset + values
    millimetres = np.round(metres, 3)
    assert np.array_equal(read_back(Places.of(millimetres)), millimetres)
    assert Places.of(millimetres).rest is None
    assert np.abs(read_back(Places.of(metres)) - metres).max() <= 1e-9  # float64 of a map: 9e-10
    exact = values.astype(np.float32)
    assert np.array_equal(read_back(Places.of(exact)), exact)


def test_a_pose_moves_positions_about_origins(tmp_path: Path) -> None:
    pose = np.array([[0, -1, 0, 3.0], [1, 0, 0, -20], [0, 0, 1, 0.5], [0, 0, 0, 1]])
    source = np.random.default_rng(2).random((20, 3)) + np.array([400_000, 50_000, 100])
    target = source @ pose[:3, :3].T + pose[:3, 3]
    clouds = [cloud(source, pose=pose), cloud(target)]
    content, arrays = held(View(clouds).write(tmp_path / "v.html"))
    moved, fixed = content["clouds"]
    matrix = np.array(moved["pose"]).reshape(4, 4).T
    near = arrays[moved["arrays"]["places"]].reshape(-1, 3).astype(np.float64)
    there = near @ matrix[:3, :3].T + matrix[:3, 3] + moved["origin"]
    rows = arrays[moved["arrays"]["rows"]]
    assert np.abs(there - target[rows]).max() < 1e-3  # float32 about the origins
    assert content["first"] == "clouds"
    assert fixed["pose"] is None


def test_names_from_outside_are_text_and_the_policy_lets_nothing_out(tmp_path: Path) -> None:
    labels = {"labels": np.zeros(3, int)}
    path = View([cloud(np.eye(3), name=EVIL, labels=labels)], [EVIL]).write(tmp_path / "v.html")
    text = path.read_text()
    found = Elements(text)
    allowed = {"html", "head", "body", "meta", "title", "style", "script", "canvas", "p", "aside"}
    allowed |= {"header", "h1", "button", "div", "fieldset", "legend", "section", "label", "input"}
    allowed |= {"details", "summary", "ul", "li", "noscript"}
    assert {tag for tag, _ in found.tags} <= allowed
    assert not any({"src", "href", "style"} & set(attributes) for _, attributes in found.tags)
    assert not any(name.startswith("on") for _, attributes in found.tags for name in attributes)
    content, _ = held(path)
    assert content["clouds"][0]["name"] == EVIL.replace("\x1b", "\\x1b")
    (title,) = found.named("title")
    assert title[1].startswith("a</script><img"), "the title is text"
    policy = next(a["content"] for a, _ in found.named("meta") if "http-equiv" in a) or ""
    assert policy.startswith("default-src 'none'; ")
    assert not {"unsafe-inline", "unsafe-eval", "*"} & set(re.split(r"[ ;']+", policy))
    programs = [t for a, t in found.named("script") if "type" not in a]
    programs += [t for _, t in found.named("style")]
    assert len(programs) == 3
    for program in programs:  # a browser runs what the policy names by its digest
        digest = base64.b64encode(hashlib.sha256(program.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy


def test_three_is_the_build_that_was_reviewed() -> None:
    program = (Path(page.__file__).parent / "three.js").read_bytes()
    digest = hashlib.sha256(program).hexdigest()
    assert digest == "7579c3d555df10890e72741b915ba7801ef6dd045dd3c3bcbb9cca5e269716f2"
    version = re.search(r"^version=(.*)$", (ROOT / ".ci" / "three").read_text(), re.MULTILINE)
    head = program[:2000].decode()
    assert version is not None
    assert f"three.js {version[1]}," in head
    assert "The MIT License" in head


def test_what_cannot_be_shown_is_refused() -> None:
    three = np.zeros((3, 3))
    wrong: list[tuple[Any, str]] = [
        (lambda: View([cloud(np.empty((0, 3)))]), "at least one point"),
        (lambda: View([cloud(three)], points=0), "at least 1 point, got 0"),
        (lambda: View([cloud(three)], NAMES, [[0, 0, 0]]), "colors"),
        (lambda: cloud(three, labels={"other": np.zeros(3, int)}), "labels"),
        (lambda: cloud(three, intensity=np.zeros(2)), "intensity"),
        (lambda: cloud(np.full((3, 3), np.inf)), "points must be finite"),
    ]
    for make, words in wrong:
        with pytest.raises(ValueError, match=words):
            make()
