"""Draw the pictures of docs/concepts.md: `python docs/site/drawings/pictures.py docs/drawings`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from cloud import CELLS, triplets
from svg import INK, INPUT, OUTPUT, PALE, WEIGHT, Picture

#: Row whose neighbours the pictures follow.
CENTRE = 3
TILE = 4  # rows of a tile in the picture; 128 in a kernel


def cells(
    picture: Picture,
    left: float,
    top: float,
    size: float,
    shape: tuple[int, int],
    filled: Sequence[tuple[int, int]],
    fill: str = INPUT,
    words: Sequence[object] | None = None,
) -> None:
    """A grid with x to the right and y up, and the occupied cells in it."""
    wide, high = shape
    for x in range(wide):
        for y in range(high):
            picture.box(left + x * size, top + (high - 1 - y) * size, size, size)
    for place, (x, y) in enumerate(filled):
        at = (left + x * size, top + (high - 1 - y) * size)
        picture.box(*at, size, size, fill, stroke=INK)
        word = place if words is None else words[place]
        ink = "#fff" if fill == OUTPUT else INK
        picture.text(at[0] + size / 2, at[1] + size / 2 + 5, word, fill=ink, font_size=15)


def draw_kernel_map() -> Picture:
    """Sites, the slots of a kernel, and the triplets of one output row."""
    picture = Picture(760, 300, "A kernel map: sites, slots of a kernel, and triplets (i, j, k)")
    size, top = 46, 60
    picture.title(20, 30, "sites, numbered by row")
    cells(picture, 20, top, size, (4, 4), CELLS)
    x, y = CELLS[CENTRE]
    left, up = 20 + (x - 1) * size, top + (3 - y - 1) * size
    picture.box(left, up, 3 * size, 3 * size, "none", stroke=OUTPUT, stroke_width=4)
    picture.title(260, 30, "kernel 3 x 3: slots k")
    around = [(k // 3, k % 3) for k in range(9)]
    cells(picture, 270, top + 20, size, (3, 3), around, WEIGHT)
    picture.text(339, 250, "W[k] is a matrix C_in x C_out")
    own = [t for t in triplets() if t[0] == CENTRE]
    picture.title(470, 30, f"triplets of output row i = {CENTRE}")
    for place, (i, j, k) in enumerate(own):
        across = 475 + place * 55
        picture.row(across, top + 20, [i], 46, 36, [OUTPUT])
        picture.row(across, top + 56, [j], 46, 36, [INPUT])
        picture.row(across, top + 92, [k], 46, 36, [WEIGHT])
    for place, name in enumerate("ijk"):
        picture.text(462, top + 43 + 36 * place, name, font_style="italic")
    terms = " + ".join(f"x[{j}] W[{k}]" for _, j, k in own[:3])
    picture.text(470, 225, f"out[{CENTRE}] = {terms}", text_anchor="start")
    rest = " + ".join(f"x[{j}] W[{k}]" for _, j, k in own[3:])
    picture.text(516, 247, f"+ {rest}", text_anchor="start")
    return picture


def draw_layouts() -> Picture:
    """One map as a table, as pairs and as tiles."""
    picture = Picture(760, 425, "One kernel map in three layouts: table, pairs, tiles")
    rows, found = len(CELLS), triplets()
    entry = {(i, k): j for i, j, k in found}
    picture.title(20, 28, "table: input row of every (output, slot)")
    width, height = 30, 26
    picture.row(60, 40, range(9), width, height, [WEIGHT] * 9)
    for i in range(rows):
        top = 40 + (i + 1) * height
        picture.row(20, top, [i], 40, height, [OUTPUT])
        words = [entry.get((i, k), "") for k in range(9)]
        picture.row(60, top, words, width, height, [INPUT if w != "" else PALE for w in words])
    picture.title(20, 320, "pairs: by slot, then output row")
    width = 30
    picture.row(20, 332, [k for *_, k in found], width, 24, [WEIGHT] * len(found))
    picture.row(20, 356, [i for i, *_ in found], width, 24, [OUTPUT] * len(found))
    picture.row(20, 380, [j for _, j, _ in found], width, 24, [INPUT] * len(found))
    for word, top in (("k", 349), ("i", 373), ("j", 397)):
        picture.text(20 + width * len(found) + 14, top, word, font_style="italic")
    filled = {i: sorted(k for o, _, k in found if o == i) for i in range(rows)}
    order = sorted(range(rows), key=lambda i: (len(filled[i]), filled[i]), reverse=True)
    picture.title(400, 28, "tiles: similar rows stand together")
    left, top = 400, 40
    for start in range(0, rows, TILE):
        tile = order[start : start + TILE]
        slots = sorted({k for i in tile for k in filled[i]})
        picture.row(left + 36, top, slots, 30, 26, [WEIGHT] * len(slots))
        for i in tile:
            top += 26
            picture.row(left, top, [i], 36, 26, [OUTPUT])
            words = [entry.get((i, k), "") for k in slots]
            fills = [INPUT if w != "" else PALE for w in words]
            picture.row(left + 36, top, words, 30, 26, fills)
        top += 40
    picture.text(400, top + 4, "empty: padding, multiplied in vain", text_anchor="start")
    return picture


def draw_sites() -> Picture:
    """Output sites of submanifold, strided and transposed convolutions."""
    picture = Picture(760, 270, "Output sites of submanifold, strided and transposed convolution")
    size, top = 40, 60
    coarse = sorted({(x // 2, y // 2) for x, y in CELLS})
    words = [""] * len(CELLS)
    picture.title(20, 30, "input")
    cells(picture, 20, top, size, (4, 4), CELLS, words=words)
    picture.title(215, 30, "submanifold")
    cells(picture, 215, top, size, (4, 4), CELLS, OUTPUT, words)
    picture.title(430, 30, "stride 2")
    cells(picture, 430, top, 2 * size, (2, 2), coarse, OUTPUT, [""] * len(coarse))
    for x, y in CELLS:
        picture.dot(430 + (x + 0.5) * size, top + (3 - y + 0.5) * size, 6)
    picture.title(620, 30, "transposed")
    cells(picture, 620, top + 10, 32, (4, 4), CELLS, OUTPUT, words)
    picture.arrow(595, 140, 614, 140)
    picture.text(684, 232, "the finer sites", font_size=13)
    picture.text(684, 249, "of the same input", font_size=13)
    picture.text(100, 245, f"{len(CELLS)} sites")
    picture.text(295, 245, "the same sites")
    picture.text(510, 245, f"{len(coarse)} coarser sites")
    return picture


#: Points of the cells above: x and y in units of a cell.
POINTS = [
    *((0.3, 1.2), (0.7, 1.8), (1.2, 1.5), (1.6, 1.1), (1.7, 2.4), (2.3, 2.2), (2.7, 2.8)),
    *((3.4, 0.5), (3.2, 2.4), (3.8, 2.7), (3.6, 3.3)),
]


def draw_native_points() -> Picture:
    """The same points as voxels, and as they are."""
    picture = Picture(
        760, 310, "Points averaged in voxels, and native points with a kernel's reach"
    )
    size, top = 55, 55
    picture.title(20, 30, "voxels: a mean for each cell")
    cells(picture, 20, top, size, (4, 4), CELLS, words=[""] * len(CELLS))
    for x, y in POINTS:
        picture.dot(20 + x * size, top + (4 - y) * size, 3, "#fff")
    for x, y in CELLS:
        picture.dot(20 + (x + 0.5) * size, top + (4 - y - 0.5) * size, 7, OUTPUT)
    left = 330
    picture.title(left, 30, "native points: every point stays, and is an output")
    for place in range(5):
        style = {"stroke_dasharray": "3 4"}
        picture.line(left, top + place * size, left + 4 * size, top + place * size, **style)
        picture.line(left + place * size, top, left + place * size, top + 4 * size, **style)
    x, y = POINTS[5]
    at = (left + x * size, top + (4 - y) * size)
    reach = 1.5 * size
    for across in range(3):
        for up in range(3):
            corner = (at[0] + (across - 1.5) * size, at[1] + (up - 1.5) * size)
            picture.box(*corner, size, size, "none", stroke=WEIGHT, stroke_width=2)
    picture.dot(*at, reach * 1.13, "none", stroke=OUTPUT, stroke_width=2)
    for px, py in POINTS:
        inside = (px - x) ** 2 + (py - y) ** 2 < (1.5 * 1.13) ** 2
        place = (left + px * size, top + (4 - py) * size)
        if inside:
            picture.line(*at, *place, stroke=INK)
        picture.dot(*place, 6, INPUT if inside else "#fff")
    picture.dot(*at, 7, OUTPUT)
    lines = ("circle: the kernel's reach", "squares: its slots")
    for place, words in enumerate((*lines, "a slot may hold several inputs")):
        picture.text(left + 233, 120 + 22 * place, words, text_anchor="start", font_size=12)
    return picture


def draw_plan() -> Picture:
    """Layers that build their maps, and a plan that builds them before the first layer."""
    picture = Picture(760, 250, "Without a plan every level waits for the host; a plan waits once")
    picture.title(20, 30, "without a plan: every new level waits for its number of sites")
    left = 20
    for layer in range(3):
        picture.row(left, 45, ["sites"], 62, 34, [INPUT])
        picture.row(left + 62, 45, ["wait"], 50, 34, ["#fff"])
        picture.row(left + 112, 45, ["map"], 50, 34, [WEIGHT])
        picture.row(left + 162, 45, [f"layer {layer + 1}"], 66, 34, [OUTPUT])
        left += 240
    picture.title(20, 130, "with a plan: all levels and maps first, one wait, then the layers")
    steps = [("sort cells", 95, INPUT), ("all levels", 85, INPUT), ("wait", 50, "#fff")]
    steps += [("all maps", 80, WEIGHT), ("layouts", 75, WEIGHT)]
    left = 20
    for word, width, fill in steps:
        picture.row(left, 145, [word], width, 34, [fill])
        left += width
    for layer in range(3):
        picture.row(left, 145, [f"layer {layer + 1}"], 66, 34, [OUTPUT])
        left += 66
    picture.arrow(20, 205, 740, 205)
    picture.text(712, 228, "time")
    picture.text(150, 228, "widths are no measurements", fill="#555", font_size=12)
    return picture


def draw_dataflows() -> Picture:
    """The order in which three dataflows compute one sum."""
    picture = Picture(760, 300, "Output-stationary, weight-stationary and gather-scatter dataflows")
    columns = (
        (
            "output-stationary",
            "for every tile of outputs:",
            ("gather inputs", "multiply, slot by", "slot, and add", "write once"),
            "no buffer, no atomics",
        ),
        (
            "weight-stationary",
            "for every slot:",
            ("gather inputs", "multiply by W[k]", "add to outputs", ""),
            "a weight is read once",
        ),
        (
            "gather-scatter",
            "for groups of slots:",
            ("copy inputs into", "a buffer; multiply", "as one matrix;", "scatter and add"),
            "large products, more memory",
        ),
    )
    for place, (name, loop, steps, note) in enumerate(columns):
        left = 20 + place * 248
        picture.title(left, 30, name)
        picture.box(left, 45, 228, 190, PALE)
        picture.text(left + 12, 68, loop, text_anchor="start", font_weight="bold")
        for step, (word, fill) in enumerate(
            zip(("x", "W", "out"), (INPUT, WEIGHT, OUTPUT), strict=True)
        ):
            top = 88 + step * 46
            picture.row(left + 14, top, [word], 46, 32, [fill])
            if step:
                picture.arrow(left + 37, top - 14, left + 37, top - 1)
        for line, words in enumerate(steps):
            picture.text(left + 76, 108 + 31 * line, words, text_anchor="start")
        picture.text(left + 114, 258, note, fill="#444")
    return picture


PICTURES = {
    "kernel_map": draw_kernel_map,
    "layouts": draw_layouts,
    "sites": draw_sites,
    "native_points": draw_native_points,
    "plan": draw_plan,
    "dataflows": draw_dataflows,
}

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (Path(sys.argv[1]) / f"{name}.svg").write_text(draw().svg())
