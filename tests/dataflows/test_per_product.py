from __future__ import annotations

import pytest
import torch

from pcnn.dataflows import Blocked, Reference
from pcnn.dataflows.per_product import PerProduct
from pcnn.geometry import Kernel
from pcnn.maps import SortedSearch
from pcnn.ops import convolution
from tests.clouds import surface_grid


def test_each_product_is_computed_by_its_own_dataflow() -> None:
    calls: list[str] = []

    class Noted(Reference):
        def mvmr(self, *args: object, **kwargs: object) -> torch.Tensor:
            calls.append(f"{self.name} mvmr")
            return super().mvmr(*args, **kwargs)  # type: ignore[arg-type]

        def vvor(self, *args: object, **kwargs: object) -> torch.Tensor:
            calls.append(f"{self.name} vvor")
            return super().vvor(*args, **kwargs)  # type: ignore[arg-type]

    grid = surface_grid(200)
    kernel = Kernel.of(2, 2)
    built = SortedSearch().build(grid, grid.strided(kernel), kernel)
    x = torch.randn(grid.rows, 3, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(8, 3, 5, dtype=torch.float64, requires_grad=True)
    mixed = PerProduct(Noted(name="one"), Noted(name="two"), Noted(name="three"))
    convolution(x, weight, built, mixed).square().sum().backward()
    grads = x.grad, weight.grad
    assert calls == ["one mvmr", "two mvmr", "three vvor"]
    x.grad = weight.grad = None
    convolution(x, weight, built, Reference()).square().sum().backward()
    torch.testing.assert_close(grads, (x.grad, weight.grad))


def test_it_says_what_its_parts_say() -> None:
    mixed = PerProduct(Blocked(), Blocked(), Reference())
    assert (mixed.needs, mixed.needs_vvor) == (Blocked().needs, Reference().needs_vvor)
    assert mixed.deterministic
    assert mixed.fuses == Blocked().fuses
    assert mixed.name == "blocked_t_blocked_o_reference"
    shaky = PerProduct(Blocked(), Blocked(), Reference(deterministic=False))
    assert not shaky.deterministic


def test_output_and_gradient_read_the_same_layouts() -> None:
    with pytest.raises(ValueError, match=r"blocked needs the layouts.*reference"):
        PerProduct(Blocked(), Reference(), Reference())
