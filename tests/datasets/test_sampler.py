from __future__ import annotations

from itertools import islice, product

import pytest

from pcnn.datasets.sampler import EpochSampler, EvaluationSampler


def take(sampler: EpochSampler, n: int, position: int = 0) -> list[list[tuple[int, int]]]:
    return list(islice(sampler.batches(position), n))


def test_an_epoch_visits_every_sample_once():
    batches = take(EpochSampler(7, 1, seed=5), 14)
    for epoch in (0, 1):
        keys = [key for batch in batches[7 * epoch : 7 * epoch + 7] for key in batch]
        assert {e for e, _ in keys} == {epoch}
        assert sorted(i for _, i in keys) == list(range(7))
    assert [b[0][1] for b in batches[:7]] != [b[0][1] for b in batches[7:]]


def test_any_position_continues_the_sequence():
    sampler = EpochSampler(10, 3, seed=1)
    whole = take(sampler, 20)
    for position in (0, 1, 2, 3, 4, 11):
        assert take(sampler, 5, position) == whole[position : position + 5]


def test_order_is_fixed_for_ever():
    # a changed order breaks every resumed run
    assert EpochSampler(8, seed=0).order(0).tolist() == [6, 3, 1, 4, 5, 2, 7, 0]


@pytest.mark.parametrize("world", [2, 3])
def test_ranks_share_what_one_process_would_see(world: int):
    n, batch_size = 20, 2
    alone = EpochSampler(n, batch_size * world, seed=4)
    ranks = [EpochSampler(n, batch_size, seed=4, rank=r, world=world) for r in range(world)]
    assert {sampler.batches_per_epoch for sampler in ranks} == {alone.batches_per_epoch}
    steps = 2 * alone.batches_per_epoch + 1
    per_rank = [take(sampler, steps) for sampler in ranks]
    for step, whole in enumerate(take(alone, steps)):
        assert [key for batches in per_rank for key in batches[step]] == whole


def test_every_rank_needs_a_batch():
    for arguments in ({"n": 0}, {"n": 3, "batch_size": 2, "world": 2}):
        with pytest.raises(ValueError, match="training samples cannot fill"):
            EpochSampler(**arguments)


@pytest.mark.parametrize("world", [1, 2, 3])
def test_evaluation_counts_every_sample_once_on_equal_numbers_of_batches(world: int):
    for n, batch_size in product((0, 1, 5, 6, 7), (1, 2, 4)):
        ranks = [EvaluationSampler(n, batch_size, rank=r, world=world) for r in range(world)]
        batches = [list(sampler) for sampler in ranks]
        assert {len(b) for b in batches} == {len(ranks[0])}
        keys = sorted(key for rank in batches for batch in rank for key in batch)
        assert keys == [(0, i) for i in range(n)], (n, batch_size)
        assert all(len(batch) <= batch_size for rank in batches for batch in rank)
