import itertools

import pytest
import torch

from pcnn.losses import CrossEntropy, LovaszSoftmax, WeightedSum, lovasz_softmax


def jaccard_loss(mistaken, truth):
    """Evaluate 1 - |G \\ S| / |G u S| of the set S of mistaken points, on Python sets."""
    union = truth | mistaken
    return 1 - len(truth - mistaken) / len(union) if union else 0.0


def lovasz_extension(errors, truth):
    """Integrate the loss of the level sets {i : m_i >= t} over t in [0, 1]: the definition."""
    levels = sorted({0.0, 1.0, *errors})
    total = 0.0
    for low, high in itertools.pairwise(levels):
        mistaken = {i for i, error in enumerate(errors) if error >= high}
        total += (high - low) * jaccard_loss(mistaken, truth)
    return total


def brute_force(logits, target, ignore=255):
    keep = [i for i, t in enumerate(target.tolist()) if t != ignore]
    probabilities = logits.detach().double().softmax(1)[keep]
    labels = [target[i].item() for i in keep]
    losses = []
    for c in sorted(set(labels)):
        errors = [abs((y == c) - float(p[c])) for y, p in zip(labels, probabilities, strict=True)]
        losses.append(lovasz_extension(errors, {i for i, y in enumerate(labels) if y == c}))
    return sum(losses) / len(losses) if losses else 0.0


@pytest.mark.parametrize(("rows", "seed"), [(1, 0), (2, 1), (5, 2), (12, 3)])
@pytest.mark.parametrize("ignored", [0.0, 0.4])
def test_equals_the_lovasz_extension_of_the_jaccard_loss(rows, seed, ignored):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, 4, dtype=torch.float64, generator=generator) * 2
    target = torch.randint(0, 3, (rows,), generator=generator)  # class 3 is never present
    target[torch.rand(rows, generator=generator) < ignored] = 255
    assert float(lovasz_softmax(logits, target)) == pytest.approx(
        brute_force(logits, target), abs=1e-12
    )


@pytest.mark.parametrize("ignored", [[], [1, 4]], ids=["all", "some ignored"])
def test_gradcheck(ignored):
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(7, 3, dtype=torch.float64, generator=generator).requires_grad_()
    target = torch.tensor([0, 1, 2, 0, 1, 2, 0])
    target[ignored] = 255
    assert torch.autograd.gradcheck(lambda x: lovasz_softmax(x, target), logits)


def test_ignored_rows_get_no_gradient_even_when_predictions_are_certain():
    # errors of exactly 0 tie with nothing: ignored rows sort behind them
    logits = torch.tensor([[1e3, 0.0], [1e3, 0.0], [0.3, 0.1], [0.0, 1e3]], dtype=torch.float64)
    logits.requires_grad_()
    lovasz_softmax(logits, torch.tensor([0, 1, 255, 1])).backward()
    assert torch.equal(logits.grad[2], torch.zeros(2, dtype=torch.float64))


def test_too_many_classes_are_refused():
    with pytest.raises(ValueError, match="up to 1048576 classes"):
        lovasz_softmax(torch.zeros(1, 2**20 + 1), torch.zeros(1, dtype=torch.int64))


@pytest.mark.parametrize("rows", [0, 5])
def test_nothing_labelled_gives_zero(rows):
    logits = torch.randn(rows, 3, requires_grad=True)
    loss = LovaszSoftmax()(logits, torch.full((rows,), 255))
    loss.backward()
    assert loss.item() == 0
    assert torch.equal(logits.grad, torch.zeros_like(logits))


def test_weighted_sum():
    logits, target = torch.randn(9, 3), torch.randint(0, 3, (9,))
    total = WeightedSum([CrossEntropy(), LovaszSoftmax()], [2.0, 0.5])(logits, target)
    expected = 2 * CrossEntropy()(logits, target) + 0.5 * lovasz_softmax(logits, target)
    torch.testing.assert_close(total, expected)
    with pytest.raises(ValueError, match="2 losses and 1 weights"):
        WeightedSum([CrossEntropy(), LovaszSoftmax()], [1.0])
    with pytest.raises(ValueError, match="0 losses"):
        WeightedSum([])
