import pytest
import torch

from pcnn.dataflows import Blocked, PerProduct, Reference
from pcnn.geometry import Kernel
from pcnn.maps import SortedSearch
from pcnn.ops import Engine, convolution
from tests.clouds import surface_grid


def test_each_product_is_computed_by_its_own_dataflow() -> None:
    calls: list[str] = []

    class Noted(Reference):
        def forward(self, *args: object) -> torch.Tensor:
            calls.append(f"{self.name} forward")
            return super().forward(*args)  # type: ignore[arg-type]

        def weight_grad(self, *args: object) -> torch.Tensor:
            calls.append(f"{self.name} weight_grad")
            return super().weight_grad(*args)  # type: ignore[arg-type]

    grid = surface_grid(200)
    kernel = Kernel.of(2, 2)
    built = SortedSearch().build(grid, grid.strided(kernel), kernel)
    x = torch.randn(grid.rows, 3, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(8, 3, 5, dtype=torch.float64, requires_grad=True)
    mixed = PerProduct(Noted(name="one"), Noted(name="two"), Noted(name="three"))
    engine = Engine("mixed", SortedSearch(), mixed)
    convolution(x, weight, built, engine).square().sum().backward()
    grads = x.grad, weight.grad
    assert calls == ["one forward", "two forward", "three weight_grad"]
    calls.clear()
    out = convolution(x, weight, built, engine).square().sum()
    torch.autograd.grad(out, (x, weight), create_graph=True)  # by operators
    assert calls == ["one forward", "two forward", "three weight_grad"]
    x.grad = weight.grad = None
    convolution(x, weight, built, Reference()).square().sum().backward()
    torch.testing.assert_close(grads, (x.grad, weight.grad))
    assert torch.autograd.gradgradcheck(
        lambda a, b: convolution(a, b, built, engine), (x, weight), fast_mode=True
    )


def test_its_facts_are_those_of_its_parts() -> None:
    mixed = PerProduct(Blocked(), Blocked(), Reference())
    needs = mixed.needs, mixed.needs_weight_grad
    assert needs == (Blocked().needs, Reference().needs_weight_grad)
    assert mixed.deterministic
    assert mixed.fuses == Blocked().fuses
    assert mixed.name == "blocked_t_blocked_o_reference"
    shaky = PerProduct(Blocked(), Blocked(), Reference(deterministic=False))
    assert not shaky.deterministic


def test_output_and_gradient_read_the_same_layouts() -> None:
    with pytest.raises(ValueError, match=r"blocked needs the layouts.*reference"):
        PerProduct(Blocked(), Reference(), Reference())
