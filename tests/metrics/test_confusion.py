import pytest
import torch
import torch.multiprocessing as mp

from pcnn.metrics.confusion import ConfusionMatrix, class_counts
from tests.forking import require_fork
from tests.waits import nothing_waits


def count(pred, target, classes, ignore=255):
    """Count with a plain loop."""
    counts = torch.zeros(classes, classes + 1, dtype=torch.int64)
    for p, t in zip(pred.tolist(), target.tolist(), strict=True):
        if t != ignore:
            counts[t, classes if p == ignore else p] += 1
    return counts


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8], ids=str)
def test_counts_equal_a_plain_loop(dtype):
    generator = torch.Generator().manual_seed(0)
    metric = ConfusionMatrix(5)
    expected = torch.zeros(5, 6, dtype=torch.int64)
    for size in (0, 1, 333):
        pred = torch.randint(0, 6, (size,), generator=generator)
        target = torch.randint(0, 6, (size,), generator=generator)
        pred[pred == 5], target[target == 5] = 255, 255
        metric.update(pred.to(dtype), target.to(dtype))
        expected += count(pred, target, 5)
    assert torch.equal(metric.compute(), expected)
    assert metric.compute().dtype == torch.int64
    metric.reset()
    assert metric.compute().sum() == 0


@pytest.mark.parametrize("ignore", [5, 255, -1, -100])
def test_rows_of_a_step_are_counted_the_same(ignore):
    metric, generator = ConfusionMatrix(5, ignore), torch.Generator().manual_seed(0)
    pred, target = torch.randint(0, 5, (2, 99), generator=generator)
    target[::7] = ignore
    metric.update(pred, target)
    assert torch.equal(class_counts(pred, target, 5), metric.compute())


def test_counts_beyond_float32_stay_exact():
    metric = ConfusionMatrix(2)
    metric.counts += 2**24
    metric.update(torch.tensor([1]), torch.tensor([0]))
    assert metric.compute().tolist() == [[2**24, 2**24 + 1, 2**24], [2**24] * 3]


def test_what_cannot_be_counted_is_refused():
    for pred, target in ((5, 0), (0, 5), (-1, 0), (0, -1)):
        metric = ConfusionMatrix(5)
        metric.update(torch.tensor([pred]), torch.tensor([target]))
        with pytest.raises(ValueError, match="neither a class id"):
            metric.compute()
    with pytest.raises(ValueError, match="one of the 5 class ids"):
        ConfusionMatrix(5, ignore_index=0)
    with pytest.raises(ValueError, match="equal length"):
        ConfusionMatrix(5).update(torch.zeros(3).long(), torch.zeros(4).long())
    with pytest.raises(TypeError, match="argmax"):
        ConfusionMatrix(5).update(torch.zeros(3), torch.zeros(3).long())


def _rank(rank, path):
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{path}", rank=rank, world_size=2
    )
    metric = ConfusionMatrix(3)
    # ranks see different numbers of points
    metric.update(torch.tensor([rank] * (rank + 1)), torch.tensor([2] * (rank + 1)))
    assert metric.compute()[2].tolist() == [1, 2, 0, 0]
    torch.distributed.destroy_process_group()


def test_ranks_are_summed(tmp_path):
    require_fork()
    mp.start_processes(_rank, (str(tmp_path / "meet"),), nprocs=2, start_method="fork")


@pytest.mark.gpu
def test_update_does_not_wait_for_the_device():
    metric = ConfusionMatrix(19).cuda()
    pred = torch.randint(0, 19, (1000,)).cuda()
    metric.update(pred, pred)
    with nothing_waits():
        metric.update(pred, pred)
    assert metric.compute().trace() == 2000
