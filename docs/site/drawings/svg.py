"""A picture in SVG: shapes and words on a white ground, in colours that differ in grey too."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

INK, PALE, LINE = "#222", "#f1f3f6", "#9aa3ad"
#: Dark and light, so that prints in grey tell them apart: outputs, inputs, weights.
OUTPUT, INPUT, WEIGHT = "#1f4e9c", "#f2b04c", "#5b9a6b"


class Picture:
    """Shapes in the order in which they are drawn.

    Args:
        width, height: of the picture, in its own units.
        says: what it shows, in words, for readers who do not see it.
    """

    def __init__(self, width: int, height: int, says: str) -> None:
        self.width, self.height, self.says = width, height, says
        self.parts: list[str] = []

    def box(
        self, x: float, y: float, w: float, h: float, fill: str = PALE, **style: object
    ) -> None:
        """A rectangle with a thin border."""
        self._add("rect", x=x, y=y, width=w, height=h, fill=fill, **{"stroke": LINE, **style})

    def dot(self, x: float, y: float, r: float = 5, fill: str = INPUT, **style: object) -> None:
        """A filled circle."""
        self._add("circle", cx=x, cy=y, r=r, fill=fill, **{"stroke": INK, **style})

    def line(self, x1: float, y1: float, x2: float, y2: float, **style: object) -> None:
        """A straight line."""
        self._add("line", x1=x1, y1=y1, x2=x2, y2=y2, **{"stroke": LINE, **style})

    def arrow(self, x1: float, y1: float, x2: float, y2: float, **style: object) -> None:
        """A line that ends in an arrow."""
        self.line(x1, y1, x2, y2, **{"stroke": INK, "marker_end": "url(#arrow)", **style})

    def text(self, x: float, y: float, words: object, **style: object) -> None:
        """Words, centred unless `anchor` says where they begin."""
        style = {"fill": INK, "font_size": 13, "text_anchor": "middle", **style}
        attributes = " ".join(f'{k.replace("_", "-")}="{v}"' for k, v in style.items())
        self.parts.append(f'<text x="{x:g}" y="{y:g}" {attributes}>{escape(str(words))}</text>')

    def title(self, x: float, y: float, words: str) -> None:
        """Words above a part of the picture."""
        self.text(x, y, words, font_size=15, font_weight="bold", text_anchor="start")

    def row(
        self, x: float, y: float, words: Iterable[object], w: float, h: float, fills: Iterable[str]
    ) -> None:
        """Boxes side by side, each with a word."""
        for place, (word, fill) in enumerate(zip(words, fills, strict=True)):
            self.box(x + place * w, y, w, h, fill)
            ink = "#fff" if fill == OUTPUT else INK
            self.text(x + (place + 0.5) * w, y + h / 2 + 4.5, word, fill=ink)

    def _add(self, name: str, **attributes: object) -> None:
        values = ((key.replace("_", "-"), value) for key, value in attributes.items())
        written = " ".join(
            f'{key}="{value:g}"' if isinstance(value, (int, float)) else f'{key}="{value}"'
            for key, value in values
        )
        self.parts.append(f"<{name} {written}/>")

    def svg(self) -> str:
        """The file's text."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
            'font-family="Helvetica, Arial, sans-serif" role="img">\n'
            f"<title>{escape(self.says)}</title>\n"
            '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
            f'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="{INK}"/></marker>'
            "</defs>\n"
            f'<rect width="{self.width}" height="{self.height}" fill="#fff"/>\n'
        )
        return head + "\n".join(self.parts) + "\n</svg>\n"
