"""Other packages of sparse convolution, measured beside ours where they are installed.

One file adapts one package: it makes its layers from ours, with the same weights, and its tensors
from cells. None of them is a dependency.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec

from benchmarks.peers.base import Peer as Peer


@dataclass(frozen=True)
class Package:
    modules: tuple[str, ...]  # what is imported, and given to the adapter
    licence: str  # SPDX name
    install: str  # command, or where its build is described


#: By the name that ``--engine`` takes; up to a dash it is that of the file here.
PACKAGES = {
    "spconv": Package(("spconv.pytorch",), "Apache-2.0", "pip install spconv-cu126"),
    "spconv-triton": Package(("spconv_triton.pytorch",), "Apache-2.0", "pip install spconv-triton"),
    "pointelligence": Package(
        ("sparse_engines.ops", "layers.conv"),
        "Apache-2.0",
        "https://github.com/ant-research/pointelligence, on PYTHONPATH",
    ),
}


def installed(name: str) -> Peer:
    package = PACKAGES[name]
    roots = {module.partition(".")[0] for module in package.modules}
    if any(find_spec(root) is None for root in roots):
        raise ValueError(f"{name} is not installed: {package.install} (licence: {package.licence})")
    adapter = import_module(f"benchmarks.peers.{name.partition('-')[0]}")
    peer: Peer = adapter.peer(name, *map(import_module, package.modules))
    return peer
