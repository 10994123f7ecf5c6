"""A page that shows clouds in a browser: one file with everything in it."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pcnn.files.whole_file import whole_file
from pcnn.messages import visible
from pcnn.visualize.palette import RIGHT, UNJUDGED, UNLABELLED, WRONG, distinct_colours
from pcnn.visualize.view.cloud import LABELS, Places, ViewedCloud

#: Points of a page, unless told otherwise; they take 22 to 55 bytes each.
POINTS = 1_000_000

#: The own part of the program, in the order in which it is read.
_SCRIPTS = ("arrays.js", "layers.js", "drawing.js", "picking.js", "panel.js", "main.js")
_HERE = Path(__file__).parent

#: Colours between which numbers are shown: five of viridis.
_SCALE = ((68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37))

#: Version of what a page holds, for programs that read it.
FORMAT = 1


@dataclass(frozen=True, eq=False)
class View:
    """The content of a page about clouds, with switches of layers and classes.

    Points lie in random order, so that any first part of them is a coarser picture of the same.
    """

    clouds: Sequence[ViewedCloud]  # at least one
    class_names: Sequence[str] = ()  # C names of the classes of all labels
    colors: NDArray[np.uint8] | Sequence[Sequence[int]] | None = None  # [C, 3] 0..255
    title: str = ""  # heading; the names of the clouds unless given
    note: str = ""  # a line below it
    points: int = POINTS  # the most that are shown, of all clouds together
    first: str | None = None  # the layer that is shown first

    def __post_init__(self) -> None:
        if not sum(map(len, self.clouds)):
            raise ValueError("a view needs a cloud with at least one point")
        if self.points < 1:
            raise ValueError(f"a view shows at least 1 point, got {self.points}")
        if self._table().shape != (len(self.class_names), 3):
            found = list(self._table().shape)
            raise ValueError(f"colors must be [{len(self.class_names)}, 3], got {found}")

    def write(self, path: str | Path) -> Path:
        """Write the page, whole: one file, which asks no network for anything.

        Its policy (CSP) forbids requests, and scripts other than its own.
        """
        path = Path(path)
        content, arrays = self.content()
        style, scripts = program()
        policy = "; ".join(
            (
                "default-src 'none'",
                f"script-src {' '.join(map(digest, scripts))}",
                f"style-src {digest(style)}",
                "img-src data: blob:",
                "base-uri 'none'",
                "form-action 'none'",
            )
        )
        head = (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{html.escape(content['title'])}</title>\n<style>{style}</style>\n"
            "</head>\n<body>\n"
        )
        with whole_file(path) as file:
            file.write(head.encode())
            file.write(template().encode())
            for block in data_blocks(content, arrays):
                file.write(block)
            for script in scripts:
                file.write(f"<script>{script}</script>\n".encode())
            file.write(b"</body>\n</html>\n")
        return path

    def content(self) -> tuple[dict[str, Any], list[NDArray]]:
        """Plain values, and the arrays that these name."""
        arrays: list[NDArray] = []

        def kept(array: NDArray) -> str:
            arrays.append(np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")))
            return f"array{len(arrays) - 1}"

        total = sum(map(len, self.clouds))
        most = min(self.points, total)  # in whole numbers: a product of floats may be one too many
        few = [one.shuffled(-(-most * len(one) // total), n) for n, one in enumerate(self.clouds)]
        own = distinct_colours(len(few))
        placed = [Places.of(cloud.points) for cloud in few]
        names = [visible(name) for name in self.class_names]
        shown = sum(map(len, few))
        notes = [self.note, f"{shown:,} of {total:,} points, an even choice" * (shown < total)]
        content = {
            "format": FORMAT,
            "title": visible(self.title or ", ".join(cloud.name for cloud in few)),
            "simulated": _simulated(few),
            "note": visible(". ".join(filter(None, notes))),
            "first": self.first or _first(few),
            "classes": [
                *(_entry(n, c) for n, c in zip(names, self._table().tolist(), strict=True)),
                _entry("no class", UNLABELLED),
            ],
            "judgements": [
                _entry("right", RIGHT),
                _entry("wrong", WRONG),
                _entry("without truth", UNJUDGED),
            ],
            "ranges": _ranges(few),
            "map": _base64(scale()).decode(),
            "clouds": [
                {
                    "name": visible(cloud.name),
                    "color": cloud.color or own[number].tolist(),
                    "origin": places.origin.tolist(),
                    "decimals": places.decimals,
                    "pose": _matrix(cloud, places, placed[0]),
                    "arrays": {n: kept(a) for n, a in _arrays(cloud, places).items()},
                    "labels": {
                        name: kept(_ids(cloud.labels[name], len(names)))
                        for name in LABELS
                        if name in cloud.labels
                    },
                }
                for number, (cloud, places) in enumerate(zip(few, placed, strict=True))
            ],
        }
        return content, arrays

    def _table(self) -> NDArray[np.uint8]:
        if self.colors is None:
            return distinct_colours(len(self.class_names))
        return np.asarray(self.colors).astype(np.uint8).reshape(-1, 3)


def program() -> tuple[str, tuple[str, str]]:
    """The style of a page, and its scripts: three.js, then the package's own."""
    own = "".join((_HERE / name).read_text("utf-8") for name in _SCRIPTS)
    own = f'"use strict";\n(() => {{\n{own}}})();\n'
    return (_HERE / "view.css").read_text("utf-8"), (
        (_HERE / "three.js").read_text("utf-8"),
        own,
    )


def template() -> str:
    """The elements of a page that its program fills."""
    return (_HERE / "page.html").read_text("utf-8")


def data_blocks(content: dict[str, Any], arrays: Sequence[NDArray]) -> list[bytes]:
    """Elements that hold the content of a view, none of which a browser runs."""
    blocks = [
        b'<script type="application/octet-stream" id="array%d" data-kind="%s">%s</script>\n'
        % (number, f"{array.dtype.kind}{array.dtype.itemsize}".encode(), _base64(array))
        for number, array in enumerate(arrays)
    ]
    # no text in it can end the element
    text = json.dumps(content, allow_nan=False).replace("<", "\\u003c")
    return [*blocks, f'<script type="application/json" id="scene">{text}</script>\n'.encode()]


def _entry(name: str, color: Sequence[int]) -> dict[str, Any]:
    return {"name": name, "color": color}


def _arrays(cloud: ViewedCloud, places: Places) -> dict[str, NDArray]:
    found: dict[str, NDArray | None] = {
        "places": places.near,
        "rest": places.rest,
        "rows": None if cloud.rows is None else cloud.rows.astype(np.uint32),
        "rgb": cloud.rgb,
        "intensity": None if cloud.intensity is None else cloud.intensity.astype(np.float32),
        "confidence": None if cloud.confidence is None else cloud.confidence.astype(np.float32),
    }
    return {name: array for name, array in found.items() if array is not None}


def _ids(labels: NDArray[np.integer], classes: int) -> NDArray:
    """Class ids [P], the last for what is no class."""
    ids = np.where((labels >= 0) & (labels < classes), labels, classes)
    return ids.astype(np.uint8 if classes < 256 else np.uint16)


def _matrix(cloud: ViewedCloud, own: Places, seen: Places) -> list[float] | None:
    """A pose between positions about origins, column by column."""
    if cloud.pose is None:
        return None
    matrix = cloud.pose.astype(np.float64).copy()
    matrix[:3, 3] += matrix[:3, :3] @ own.origin - seen.origin
    return matrix.T.ravel().tolist()


def _simulated(clouds: Sequence[ViewedCloud]) -> str:
    """The mark of simulated clouds, with their names where others are real."""
    names = [visible(cloud.name) for cloud in clouds if cloud.simulated]
    some = 0 < len(names) < len(clouds)
    return "SIMULATED DATA" * bool(names) + f": {', '.join(names)}" * some


def _first(clouds: Sequence[ViewedCloud]) -> str:
    if any(cloud.pose is not None for cloud in clouds):
        return "clouds"
    for name in LABELS:
        if any(name in cloud.labels for cloud in clouds):
            return name
    return "colour" if any(cloud.rgb is not None for cloud in clouds) else "height"


def _ranges(clouds: Sequence[ViewedCloud]) -> dict[str, list[float]]:
    """Ends of the scales: the inner 98 % of heights and intensities."""

    def ends(columns: list[NDArray]) -> list[float]:
        values = np.concatenate(columns)
        return [float(value) for value in np.quantile(values, [0.01, 0.99])] if len(values) else []

    found = {"height": ends([cloud.points[:, 2] for cloud in clouds])}
    intensities = [cloud.intensity for cloud in clouds if cloud.intensity is not None]
    if intensities:
        found["intensity"] = ends(intensities)
    return found | {"confidence": [0.0, 1.0]}


def scale() -> NDArray[np.uint8]:
    """Colours ``[256, 3]`` of numbers, from the least to the largest."""
    at = np.linspace(0, len(_SCALE) - 1, 256)
    parts = [np.interp(at, range(len(_SCALE)), channel) for channel in zip(*_SCALE, strict=True)]
    return np.stack(parts, 1).astype(np.uint8)


def _base64(array: NDArray) -> bytes:
    return base64.b64encode(np.ascontiguousarray(array).tobytes())


def digest(text: str) -> str:
    """The name by which a policy permits a script or a style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
