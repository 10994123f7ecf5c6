"""How many calls Python makes for a convolution: small clouds wait for the host, not the device.

Calls are counted, as they do not depend on the machine or on what else it does. A launch ends where
Triton's compiled launcher would begin.
"""

import os
import sys
from collections.abc import Callable
from types import FrameType, SimpleNamespace

import pytest
import torch
from torch import nn

pytest.importorskip("triton")
if os.environ.get("TRITON_INTERPRET") == "1":
    pytest.skip("the interpreter launches nothing", allow_module_level=True)


import pcnn
from pcnn.dataflows import OutputStationary, gemm
from pcnn.kernels.triton_launch import Variant
from pcnn.maps import SortedSearch
from pcnn.nn import Conv3d
from pcnn.nn.fused import FoldedNorm, fused_convolution
from pcnn.ops import Engine
from pcnn.tensor import SparseTensor
from tests.clouds import surface_grid


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    """Kernels of CPU tensors are launched, and do nothing but be written down."""
    calls: list[tuple[object, ...]] = []
    run = SimpleNamespace(run=lambda *args: calls.append(args), function=1, packed_metadata=(4,))
    monkeypatch.setattr(gemm, "kernels_serve", lambda *_: True)
    monkeypatch.setattr(Variant, "_launch", lambda *_: run)
    # a CPU tensor says it lies on device -1
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: -1, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda _: 0, raising=False)
    return calls


def count(call: Callable[[], object]) -> int:
    """Functions of the package that one call enters, and functions of C that those call."""
    found, package = 0, os.path.dirname(pcnn.__file__)

    def seen(frame: FrameType, event: str, argument: object) -> None:
        nonlocal found
        own = frame.f_code.co_filename.startswith(package)
        found += own and event in ("call", "c_call")

    call(), call()  # what is kept from call to call is there
    sys.setprofile(seen)
    try:
        call()
    finally:
        sys.setprofile(None)
    return found


@pytest.mark.parametrize("fused", [False, True])
@torch.no_grad()
def test_a_convolution_makes_few_calls(fused: bool, launches: list[tuple[object, ...]]) -> None:
    engine = Engine("own", SortedSearch(), OutputStationary(sections=True))
    layer = Conv3d(32, 32, 3, bias=False, engine=engine).half().eval()
    norm, folded = nn.BatchNorm1d(32).eval(), FoldedNorm()
    grid = surface_grid(300)
    x = SparseTensor(torch.randn(grid.rows, 32).half(), grid)
    if fused:
        made = count(lambda: fused_convolution(layer, x, None, norm, x, True, folded))
    else:
        made = count(lambda: layer(x))
    assert len(launches) == 2  # the first call compiles
    assert made <= (64 if fused else 44)
