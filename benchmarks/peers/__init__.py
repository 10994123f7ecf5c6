"""Other packages of sparse convolution, measured beside ours where they are installed.

One file adapts one package: it makes its layers from ours, with the same weights, and its tensors
from cells. None of them is a dependency.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from benchmarks.peers.base import Peer as Peer


@dataclass(frozen=True)
class Package:
    """Where a package is found."""

    modules: tuple[str, ...]  # what is imported, and given to the adapter
    adapter: str  # the file here
    licence: str  # SPDX name
    install: str  # command, or where its build is described


#: By the name that ``--engine`` takes. ``torchsparse`` is our engine of that name.
PACKAGES = {
    "spconv": Package(("spconv.pytorch",), "spconv", "Apache-2.0", "pip install spconv-cu126"),
    "spconv-triton": Package(
        ("spconv_triton.pytorch",), "spconv", "Apache-2.0", "pip install spconv-triton"
    ),
    "torchsparse-package": Package(
        ("torchsparse", "torchsparse.nn"),
        "torchsparse",
        "MIT",
        "pip install git+https://github.com/mit-han-lab/torchsparse.git",
    ),
    "minkowski": Package(
        ("MinkowskiEngine",), "minkowski", "MIT", "https://github.com/NVIDIA/MinkowskiEngine"
    ),
    "warpconvnet": Package(
        ("warpconvnet.geometry.types.voxels", "warpconvnet.nn.modules.sparse_conv"),
        "warpconvnet",
        "Apache-2.0",
        "pip install warpconvnet",
    ),
    "flexgemm": Package(
        ("flex_gemm.ops.spconv",), "flexgemm", "MIT", "https://github.com/JeffreyXiang/FlexGEMM"
    ),
    "pointelligence": Package(
        ("sparse_engines.ops", "layers.conv"),
        "pointelligence",
        "Apache-2.0",
        "https://github.com/ant-research/pointelligence, on PYTHONPATH",
    ),
}


def installed(name: str) -> Peer:
    """The adapter of an installed package."""
    package = PACKAGES[name]
    adapter = import_module(f"benchmarks.peers.{package.adapter}")
    peer: Peer = adapter.peer(name, *modules_of(name, package))
    return peer


def modules_of(name: str, package: Package) -> list[ModuleType]:
    """The modules of an installed package; errors as of `installed`."""
    roots = {module.partition(".")[0] for module in package.modules}
    if any(find_spec(root) is None for root in roots):
        raise ValueError(f"{name} is not installed: {package.install} (licence: {package.licence})")
    return [import_module(module) for module in package.modules]
