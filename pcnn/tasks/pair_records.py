"""Records of a pass over pairs, from every rank, each pair once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch.distributed as dist

from pcnn.tasks.pair_judge import PairJudge, PairRecord


class PairRecords:
    """What one rank has judged in a pass, by the name of the pair.

    A pair that occurs again, as where a sampler fills the last batch of a rank up, counts once.
    """

    def __init__(self) -> None:
        self._own: dict[str, PairRecord] = {}

    def add(self, records: Iterable[PairRecord]) -> None:
        """Keep records."""
        for record in records:
            self._own[record.name] = record

    def gathered(self) -> dict[str, PairRecord]:
        """Take the records of all ranks, in the order of their names, and begin anew.

        Every rank calls this at the end of a pass and gets the same.
        """
        own, self._own = self._own, {}
        parts: list[dict[str, PairRecord]] = [own]
        if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
            parts = [{} for _ in range(dist.get_world_size())]
            dist.all_gather_object(parts, own)
        joined = {name: record for part in parts for name, record in part.items()}
        return dict(sorted(joined.items()))


def figures(records: Mapping[str, PairRecord], judge: PairJudge) -> dict[str, float]:
    """Means over pairs.

    Args:
        records: at least one.
        judge: whose rules count.

    Returns:
        `loss`, `feat_match_ratio`, `inlier_ratio`, and where transforms were estimated `rr`, and
        `rre` [deg] and `rte` [m] over the registered pairs, if there are any.
    """
    each = list(records.values())
    found = {
        "loss": _mean([record.loss for record in each]),
        "feat_match_ratio": _mean([judge.matches_features(record) for record in each]),
        "inlier_ratio": _mean([record.inlier_ratio for record in each]),
    }
    if judge.ransac is not None:
        registered = [record for record in each if judge.registers(record)]
        found["rr"] = len(registered) / len(each)
        if registered:
            found["rre"] = _mean([record.rre for record in registered])
            found["rte"] = _mean([record.rte for record in registered])
    return found


def _mean(values: list[float] | list[bool]) -> float:
    return sum(values) / len(values)
