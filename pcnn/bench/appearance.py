"""Colours and markers of charts: one method has one colour in every chart.

A method is an engine, the map builder of its paper, and the authors' code of it. Colours are mostly
those of Okabe and Ito and of Tol. Methods that share a chart differ by 14 at least (CIE 1976), also
without red, green or blue cones; markers differ too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import cycle

#: Follows the name of an engine whose authors' code was measured, not ours.
AUTHORS = ", authors' code, recorded"
#: Follows the name of an engine that finds the cache empty.
COLD = ", cold cache"

BLUE, SKY, CYAN, INDIGO, LAVENDER = "#0072B2", "#56B4E9", "#88CCEE", "#332288", "#9F8CE0"
ORANGE, RED, CRIMSON, WINE, PINK = "#E69F00", "#D55E00", "#AA1111", "#882255", "#CC79A7"
GREEN, FOREST, PALE, GREY, BLACK = "#009E73", "#117733", "#CCCCCC", "#555555", "#000000"


@dataclass(frozen=True)
class Look:
    """How a series is drawn.

    Args:
        color: as matplotlib takes it.
        marker: matplotlib's letter.
        line: matplotlib's style of a line.
    """

    color: str
    marker: str
    line: str = "-"


#: Engines, lines, map builders, other engines' own code, and time without work.
METHODS = {
    "auto": Look(BLUE, "o"),
    "graph": Look(BLUE, "o"),
    "graph of that size": Look(SKY, "s", "--"),
    "native": Look(BLUE, "o"),
    "windowed": Look(INDIGO, "o"),
    "row_stationary": Look(BLUE, "o"),
    "eager": Look(INDIGO, "s"),
    "voxel": Look(INDIGO, "s"),
    "pack_and_sort": Look(BLUE, "s"),
    "spira": Look(RED, "s"),
    "z_delta": Look(RED, "s"),
    "minuet": Look(ORANGE, "D"),
    "double_traversed": Look(ORANGE, "D"),
    "torchsparse": Look(GREEN, "^"),
    "hash_table": Look(GREEN, "^"),
    "torchsparse++": Look(CYAN, "v"),
    "pointcnnpp": Look(PINK, "P"),
    "pointelligence": Look(PINK, "P"),
    "triplets_k": Look(PINK, "P"),
    "triplets_i": Look(LAVENDER, "<"),
    "triplets_j": Look(WINE, ">"),
    "binary_search": Look(FOREST, "v"),
    "weight_stationary": Look(ORANGE, "D"),
    "spconv": Look(LAVENDER, "<"),
    "flexgemm": Look(CRIMSON, ">"),
    "warpconvnet": Look(WINE, "p"),
    "degraded": Look(GREY, "X"),
    "idle": Look(PALE, "s"),
    "reference": Look(GREY, "X"),
}
#: Markers of recorded times: strokes, never filled.
STROKES = {
    "spira": "x",
    "minuet": "1",
    "torchsparse": "2",
    "spconv": "3",
    "flexgemm": "4",
    "warpconvnet": "*",
    "pointelligence": "x",
}
#: Markers of the dataflows of one engine, which share its colour.
DATAFLOWS = {
    "output-stationary": "<",
    "weight-stationary": ">",
    "hybrid": "p",
    "gather-scatter": "h",
}
#: Colours and markers of all other series, in their order.
SEQUENCE = (*(BLUE, ORANGE, GREEN, RED, SKY, PINK, INDIGO, GREY, WINE, LAVENDER, FOREST, CRIMSON),)
MARKERS = "osD^vP<>pXhd"


def looks(labels: Iterable[str]) -> dict[str, Look]:
    """Look of every series of a chart.

    Args:
        labels: of its series, each once. Names of `METHODS` have their own look; others, as steps
            and settings, take `SEQUENCE` in their order, from dark to light where it is too short.
    """
    found = {label: known(label) for label in labels}
    others = [label for label, look in found.items() if look is None]
    named = {look.color for look in found.values() if look}
    free = [place for place, color in enumerate(SEQUENCE) if color not in named]
    if len(others) > len(free):
        from matplotlib import colormaps
        from matplotlib.colors import to_hex

        last = len(others) - 1
        shades = [to_hex(colormaps["viridis"](0.95 * n / last)) for n in range(last + 1)]
    else:
        shades = [SEQUENCE[place] for place in free]
    taken = {look.marker for look in found.values() if look}
    marks = cycle([marker for marker in MARKERS if marker not in taken])
    plain = {label: Look(*how) for label, *how in zip(others, shades, marks, strict=False)}
    return {label: look or plain[label] for label, look in found.items()}


def known(label: str) -> Look | None:
    """Look of a method; ``None`` if the label names none."""
    name = label.partition(",")[0]
    words = name.split()
    method = METHODS.get(name) or METHODS.get(words[0]) if words else None
    if method is None:
        return None
    if label.endswith(AUTHORS):
        return Look(method.color, STROKES.get(words[0], "x"), ":")
    marker = DATAFLOWS.get(words[1], method.marker) if len(words) > 1 else method.marker
    return Look(method.color, marker, "--" if label.endswith(COLD) else "-")
