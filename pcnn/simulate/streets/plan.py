"""Which scans a set consists of, and how the work is cut into jobs."""

from __future__ import annotations

from dataclasses import dataclass

from pcnn.simulate.streets.settings import Split

#: the official split
TRAIN_SEQUENCES = (0, 1, 2, 3, 4, 5, 6, 7, 9, 10)
VAL_SEQUENCES = (8,)

# A job builds its stretch of street once; how scans are grouped never depends on the number of
# workers.
_SCANS_PER_JOB = 4


@dataclass(frozen=True)
class SequencePlan:
    """The scans of one sequence: scan i is frame i * frame_stride of a 10 Hz drive."""

    sequence: int
    split: Split
    scans: int
    frame_stride: int

    def frames(self) -> list[int]:
        """Return the frame of every scan."""
        return [index * self.frame_stride for index in range(self.scans)]


@dataclass(frozen=True)
class Job:
    """Neighbouring scans of one sequence that one process takes."""

    seed: int
    sequence: int
    split: Split
    scans: tuple[tuple[int, int], ...]  # (scan index, frame)

    @property
    def name(self) -> str:
        """Sequence and first scan, which no other job has."""
        return f"{self.sequence:02d}-{self.scans[0][0]:06d}"


def plan_sequences(train_scans: int, val_scans: int, frame_stride: int) -> list[SequencePlan]:
    """Share the scans evenly among the official sequences; the first ones get the remainder.

    Raises:
        ValueError: a negative count, no scan at all, or a frame stride under 1.
    """
    if min(train_scans, val_scans) < 0 or train_scans + val_scans == 0:
        raise ValueError(
            f"train_scans={train_scans} and val_scans={val_scans}: "
            "give counts of at least 0, not both 0"
        )
    if frame_stride < 1:
        raise ValueError(
            f"frame_stride={frame_stride}: give the number of 10 Hz frames, at least 1"
        )
    plans = []
    shares: list[tuple[tuple[int, ...], Split, int]] = [
        (TRAIN_SEQUENCES, "train", train_scans),
        (VAL_SEQUENCES, "val", val_scans),
    ]
    for sequences, split, total in shares:
        for place, sequence in enumerate(sequences):
            count = total // len(sequences) + (place < total % len(sequences))
            if count:
                plans.append(SequencePlan(sequence, split, count, frame_stride))
    return plans


def plan_jobs(seed: int, plans: list[SequencePlan]) -> list[Job]:
    """Cut every sequence into jobs."""
    jobs = []
    for plan in plans:
        scans = list(enumerate(plan.frames()))
        for start in range(0, len(scans), _SCANS_PER_JOB):
            part = tuple(scans[start : start + _SCANS_PER_JOB])
            jobs.append(Job(seed, plan.sequence, plan.split, part))
    return jobs
