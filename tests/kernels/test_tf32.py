"""Both switches of torch for float32 products in TF32."""

from collections.abc import Callable, Iterator

import pytest
import torch

from pcnn.kernels.conv_spec import tf32_allowed

MATMUL = torch.backends.cuda.matmul
WORDS = ("tf32", "ieee") if hasattr(MATMUL, "fp32_precision") else ()  # torch before 2.9 has none


@pytest.fixture(autouse=True)
def switches_as_before() -> Iterator[None]:
    """The older switch can be read again when the newer one was set back."""
    yield
    if hasattr(MATMUL, "fp32_precision"):
        MATMUL.fp32_precision = "ieee"
    MATMUL.allow_tf32 = False


SWITCHES = [
    *((lambda on=on: setattr(MATMUL, "allow_tf32", on), on) for on in (True, False)),
    (lambda: torch.set_float32_matmul_precision("high"), True),
    *((lambda to=to: setattr(MATMUL, "fp32_precision", to), to == "tf32") for to in WORDS),
]


@pytest.mark.parametrize(("switch", "allowed"), SWITCHES)
def test_every_switch_is_followed(switch: Callable[[], None], allowed: bool) -> None:
    switch()
    assert tf32_allowed() is allowed
    precision_of = pytest.importorskip("pcnn.kernels.gathered_product").precision_of
    assert precision_of(torch.float32) == ("tf32" if allowed else "ieee")
    assert precision_of(torch.float16) == "ieee"
