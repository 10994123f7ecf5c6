import pytest
import torch
import torch.nn.functional as F

from pcnn.losses import CrossEntropy, inverse_log_frequency


def batch(rows=50, classes=6, dtype=torch.float64, ignored=0.3):
    generator = torch.Generator().manual_seed(rows)
    logits = torch.randn(rows, classes, generator=generator, dtype=dtype).requires_grad_()
    target = torch.randint(0, classes, (rows,), generator=generator)
    target[torch.rand(rows, generator=generator) < ignored] = 255
    return logits, target


@pytest.mark.parametrize("weight", [None, [0.5, 1, 2, 3, 0, 1]], ids=["plain", "weighted"])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_equals_torch_where_torch_is_defined(weight, smoothing):
    logits, target = batch()
    w = None if weight is None else torch.tensor(weight, dtype=logits.dtype)
    expected = F.cross_entropy(logits, target, w, ignore_index=255, label_smoothing=smoothing)
    (expected_grad,) = torch.autograd.grad(expected, logits)
    loss = CrossEntropy(weight, label_smoothing=smoothing)(logits, target)
    (grad,) = torch.autograd.grad(loss, logits)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(grad, expected_grad)


@pytest.mark.parametrize("rows", [0, 7])
@pytest.mark.parametrize("weight", [None, [1.0, 2, 3, 4, 5, 6]], ids=["plain", "weighted"])
def test_nothing_labelled_gives_zero_loss_and_zero_gradient(rows, weight):
    logits, target = batch(rows)
    loss = CrossEntropy(weight)(logits, torch.full_like(target, 255))
    loss.backward()
    assert loss.item() == 0
    assert torch.equal(logits.grad, torch.zeros_like(logits))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_summed_in_float32(dtype):
    logits, target = batch(5000, dtype=torch.float32)
    low = logits.detach().to(dtype)
    loss = CrossEntropy()(low, target)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, F.cross_entropy(low.float(), target, ignore_index=255))


def test_inverse_log_frequency():
    weights = inverse_log_frequency([900, 100, 0])
    expected = 1 / torch.log(torch.tensor([1.92, 1.12, 1.02]))
    torch.testing.assert_close(weights, expected)
    for bad in ([], [0, 0], [-1, 2], [float("nan"), 2], [float("inf"), 2]):
        with pytest.raises(ValueError, match="counts"):
            inverse_log_frequency(bad)
    with pytest.raises(ValueError, match="offset"):
        inverse_log_frequency([1], offset=1.0)


@pytest.mark.parametrize("options", [{"weight": "counted"}, {"label_smoothing": 1.5}])
def test_what_is_no_weight_and_no_share_is_refused(options: dict) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        CrossEntropy(**options)
