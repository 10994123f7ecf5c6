"""The content of a view, read back to be shown in another page."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from pcnn.errors import FileError
from pcnn.files.bounded import named
from pcnn.visualize.view.page import FORMAT

#: Largest page that is read [bytes].
_MOST = 1 << 30

_ARRAY = re.compile(
    rb'<script type="application/octet-stream" id="(array\d{1,6})" data-kind="(f4|u1|u2|u4)">'
    rb"([A-Za-z0-9+/=]*)</script>\n"
)
_SCENE = re.compile(rb'<script type="application/json" id="scene">([^<]*)</script>\n')


@dataclass(frozen=True)
class HeldView:
    """The data of a view, apart from its program."""

    title: str  # heading of the page
    blocks: str  # the elements of the data, of known form: nothing in them runs


def read_view(path: Path) -> HeldView | None:
    """Take the data out of a page that `pcnn.visualize.view.View` wrote; None of another page."""
    with named(path, "page of a view"):
        if path.stat().st_size > _MOST:
            raise FileError(path, f"a view has at most {_MOST >> 30} GiB")
        text = path.read_bytes()
        found = _SCENE.search(text)
        if found is None:
            return None
        scene = json.loads(found[1])
        if not isinstance(scene, dict) or scene.get("format") != FORMAT:
            raise FileError(
                path, "a view of another version; write it again, or leave views out (--no-views)"
            )
        arrays = [one[0] for one in _ARRAY.finditer(text)]
        return HeldView(str(scene.get("title", "")), b"".join([*arrays, found[0]]).decode())
