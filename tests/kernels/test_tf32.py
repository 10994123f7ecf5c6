"""Both switches of torch for float32 products in TF32."""

from collections.abc import Iterator

import pytest
import torch

from pcnn.kernels.tf32 import tf32_allowed

MATMUL = torch.backends.cuda.matmul


@pytest.fixture(autouse=True)
def switches_as_before() -> Iterator[None]:
    """The older switch can be read again when the newer one was set back."""
    yield
    if hasattr(MATMUL, "fp32_precision"):
        MATMUL.fp32_precision = "ieee"
    MATMUL.allow_tf32 = False


@pytest.mark.parametrize("allowed", [True, False])
def test_the_older_switch(allowed: bool) -> None:
    MATMUL.allow_tf32 = allowed
    assert tf32_allowed() is allowed


@pytest.mark.parametrize(("setting", "allowed"), [("high", True), ("highest", False)])
def test_the_switch_of_all_devices(setting: str, allowed: bool) -> None:
    torch.set_float32_matmul_precision(setting)
    assert tf32_allowed() is allowed


@pytest.mark.skipif(not hasattr(MATMUL, "fp32_precision"), reason="torch before 2.9")
@pytest.mark.parametrize(("setting", "allowed"), [("tf32", True), ("ieee", False)])
def test_the_newer_switch(setting: str, allowed: bool) -> None:
    MATMUL.fp32_precision = setting
    assert tf32_allowed() is allowed


@pytest.mark.skipif(not hasattr(MATMUL, "fp32_precision"), reason="torch before 2.9")
def test_kernels_follow_the_newer_switch() -> None:
    precision_of = pytest.importorskip("pcnn.kernels.gathered_product").precision_of
    MATMUL.fp32_precision = "tf32"
    assert precision_of(torch.float32) == "tf32"
    assert precision_of(torch.float16) == "ieee"
