"""The Triton kernel of docs/adding_a_kernel.md, as it is written there."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
import torch

from tests.kernels.triton.conftest import DEVICE

PAGE = Path(__file__).parents[3] / "docs" / "adding_a_kernel.md"


@pytest.fixture
def example(tmp_path: Path) -> ModuleType:
    """The page's module; Triton reads sources from files."""
    found = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (source,) = [block for block in found if "def launch_central_product" in block]
    path = tmp_path / "central_product.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("n", "c_in", "c_out"), [(0, 4, 4), (1, 3, 5), (150, 33, 70)])
def test_the_documented_kernel_computes_what_it_says(
    example: ModuleType, n: int, c_in: int, c_out: int
) -> None:
    x = torch.randn(n, c_in, device=DEVICE)
    weight = torch.randn(27, c_in, c_out, device=DEVICE)
    out = example.launch_central_product(x, weight, torch.float32)
    torch.testing.assert_close(out, x @ weight[13], rtol=1e-5, atol=1e-4)
