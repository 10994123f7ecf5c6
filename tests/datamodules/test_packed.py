from __future__ import annotations

import pickle

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from pcnn.datamodules.packed import BatchMemory, CollatePacked, Packed, Part, unpacked
from pcnn.datasets import OnPoints, OnVoxels, Placement
from pcnn.datasets.batches import CloudBatch, CollateClouds
from tests.datasets.clouds import cloud


def batch(placement: Placement, *sizes: int) -> CloudBatch:
    samples = [placement.sample(cloud(n, seed=n), 0.5) for n in sizes]
    return CollateClouds(4, placement)(samples)


@pytest.mark.parametrize(
    ("placement", "sizes"), [(OnVoxels(), ()), (OnVoxels(), (33, 50)), (OnPoints(), (1, 50))]
)
def test_a_batch_comes_back_as_it_was(placement: Placement, sizes: tuple[int, ...]):
    before = batch(placement, *sizes)
    packed = pickle.loads(pickle.dumps(Packed.of(before)))
    after = packed.unpack()
    assert after.names == before.names
    assert type(after.tensor.geometry) is type(before.tensor.geometry)
    for a, b in zip(after.tensors(), before.tensors(), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert torch.equal(a, b)
    for name in ("keys", "inverse"):
        a, b = getattr(after.tensor.geometry, name), getattr(before.tensor.geometry, name)
        assert torch.equal(a, b)
    assert torch.equal(after.tensor.features, before.tensor.features)


def test_tensors_of_all_kinds():
    base = torch.arange(24.0).reshape(4, 6)
    values = {
        "strided": base[::2, 1::2],
        "transposed": base.T,
        "empty": torch.empty(0, 3, dtype=torch.int16),
        "scalar": torch.tensor(True),
        "half": torch.tensor([1.5], dtype=torch.bfloat16),
        "twice": [base, base],
        "word": "text",
    }
    found = Packed.of(values).unpack()
    for name in ("strided", "transposed", "empty", "scalar", "half"):
        assert torch.equal(found[name], values[name])
        assert found[name].dtype == values[name].dtype
    assert found["twice"][0] is found["twice"][1]
    assert found["word"] == "text"


class Clouds(Dataset):
    def __getitem__(self, index: int):
        return OnVoxels().sample(cloud(20 + index), 0.5)

    def __len__(self) -> int:
        return 12


@pytest.mark.parametrize("room", [1 << 20, 64, None])  # enough, too little, none at all
def test_batches_pass_through_memory_that_is_used_again(room: int | None):
    memory = room and BatchMemory(2, 3, room)
    collate = CollatePacked(CollateClouds(4), memory)
    loader = DataLoader(Clouds(), batch_size=2, collate_fn=collate, num_workers=2)
    numbers = []
    for number, sent in enumerate(loader):
        assert isinstance(sent, Packed)
        assert isinstance(sent.buffer, Part) == (room == 1 << 20)
        if isinstance(sent.buffer, Part):
            numbers.append((sent.buffer.index, sent.buffer.number))
        own = CollateClouds(4)([Clouds()[2 * number], Clouds()[2 * number + 1]])
        for a, b in zip(unpacked(sent).tensors(), own.tensors(), strict=True):
            assert torch.equal(a, b)
        if numbers:
            with pytest.raises(RuntimeError, match="taken before"):
                sent.unpack()
    if memory:
        assert not memory.holds.any()
    if numbers:
        assert [n for _, n in numbers] == [1, 1, 2, 2, 3, 3]
        assert {index // 3 for index, _ in numbers} == {0, 1}
    here = next(iter(DataLoader(Clouds(), batch_size=2, collate_fn=collate)))
    assert isinstance(here, CloudBatch)
    assert unpacked(here) is here


def test_batches_that_are_never_taken_free_their_memory():
    memory = BatchMemory(1, 3, 1 << 20)
    loader = DataLoader(
        Clouds(),
        collate_fn=CollatePacked(CollateClouds(4), memory),
        num_workers=1,
        persistent_workers=True,
    )
    for _ in range(2):  # a sanity check before a training ends its pass early
        assert unpacked(next(iter(loader))).names
    # the first ones may be made before those of the last pass have been let go
    *_, last = (isinstance(sent.buffer, Part) for sent in loader)
    assert last
    assert not memory.holds.any()


@pytest.mark.gpu
def test_pinned_memory():
    before = batch(OnVoxels(), 40, 50)
    after = Packed.of(before).pin_memory()
    assert all(tensor.is_pinned() for tensor in after.tensors())
    moved = after.to("cuda", non_blocking=True)
    assert torch.equal(moved.points.cpu(), before.points)
