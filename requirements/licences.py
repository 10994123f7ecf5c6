"""Write docs/licences.md: the licences of all packages of the locks, from their own metadata.

`make licences` calls it in the environment of `make install-dev`.
"""

from __future__ import annotations

import re
import sys
from hashlib import sha256
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCKS = ("cpu", "cuda")
HEAD = """\
# Licences of dependencies

`pcnn` itself is under the Apache License 2.0. Below are all packages of the locks
(`requirements/cpu.lock`, `requirements/cuda.lock`), with the licence that their own metadata
states; `make licences` writes this page. A package that the build, the system or the Python where
it was written does not install has no metadata to read: its page on the index,
`https://pypi.org/project/NAME`, states its licence, and those named `nvidia-*` are under NVIDIA's
own terms. Packages whose weights are converted, and whose times are measured where they are
installed, are no dependencies: [interop.md](interop.md) names their licences.

The package carries a part of [three.js](https://threejs.org), which draws the pages of `pcnn view`,
under the MIT licence: `pcnn/visualize/view/three.js`, with its licence at the head. `make three`
bundles it with esbuild from the version in `requirements/three/package-lock.json`; a page needs no
network for it. Its SHA-256 is

    {three}

| package | licence |
|---|---|
"""
NOT_HERE = "not installed where this page was written"


def names() -> list[str]:
    """Names of the packages of both locks."""
    found = {"torch"}  # its CPU build is in no lock
    for build in LOCKS:
        text = (ROOT / "requirements" / f"{build}.lock").read_text()
        found |= set(re.findall(r"^([A-Za-z0-9._-]+)==", text, re.MULTILINE))
    return sorted(found)


def licence(name: str) -> str:
    """Licence of an installed package, in one line."""
    try:
        about = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return NOT_HERE
    fields = {key: about.get_all(key) or [] for key in ("License-Expression", "License")}
    classes = [
        entry.rpartition(" :: ")[2]
        for entry in about.get_all("Classifier") or []
        if entry.startswith("License :: ") and entry != "License :: OSI Approved"
    ]
    # some packages put their licence's whole text into the field: its first line names it
    texts = [
        line.strip() for field in fields["License"] for line in field.splitlines() if line.strip()
    ]
    said = fields["License-Expression"] or classes or texts[:1] or ["not stated"]
    return ", ".join(dict.fromkeys(said)).replace("|", "/")


def page() -> str:
    """Text of the page."""
    three = sha256((ROOT / "pcnn/visualize/view/three.js").read_bytes()).hexdigest()
    return HEAD.format(three=three) + "".join(f"| {name} | {licence(name)} |\n" for name in names())


if __name__ == "__main__":
    (ROOT / "docs" / "licences.md").write_text(page())
    sys.stdout.write("docs/licences.md\n")
