"""Other packages of sparse convolution, measured beside ours where they are installed.

One file adapts one package: it makes its layers from ours, with the same weights, and its tensors
from cells. None of them is a dependency.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pcnn.bench.installed.peer import Peer


@dataclass(frozen=True)
class Package:
    """Where a package is found.

    Args:
        module: what is imported.
        adapter: the file here.
        licence: SPDX name.
        install: command, or where its build is described.
    """

    module: str
    adapter: str
    licence: str
    install: str


#: By the name that ``--engine`` takes.
PACKAGES = {
    "spconv": Package("spconv.pytorch", "spconv", "Apache-2.0", "pip install spconv-cu126"),
    "spconv-triton": Package(
        "spconv_triton.pytorch", "spconv", "Apache-2.0", "pip install spconv-triton"
    ),
}


def installed(name: str) -> Peer:
    """The adapter of an installed package.

    Raises:
        ValueError: it is not installed; says how to install it, and its licence.
    """
    package = PACKAGES[name]
    if find_spec(package.module.partition(".")[0]) is None:
        raise ValueError(
            f"{name} is not installed; it is measured where it is: {package.install} (licence: "
            f"{package.licence})"
        )
    adapter = import_module(f"pcnn.bench.installed.{package.adapter}")
    peer: Peer = adapter.peer(name, import_module(package.module))
    return peer
