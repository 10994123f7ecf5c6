"""Mutated files read in a process of their own, which is watched: time, memory, and how it ends."""

import logging
import multiprocessing
import resource
import shutil
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random

from pcnn.errors import FileError
from tests.fuzz.mutators import mutated
from tests.fuzz.subjects import Subject, subjects

SECONDS = 5.0
GIB = 1 << 30
MEMORY = 2 * GIB
#: No answer for so long is a hang, however busy the machine.
_PATIENCE = 60.0


@dataclass
class Findings:
    """Results of many files."""

    read: int = 0
    refused: int = 0
    bad: list[str] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        """Number of files."""
        return self.read + self.refused + len(self.bad)


def fuzzed(seed: int, files: int | None = None, seconds: float | None = None) -> Findings:
    """Read so many mutated files of all kinds in turn, or as many as the time is enough for."""
    found, start, number = Findings(), time.monotonic(), 0
    end = float("inf") if seconds is None else start + seconds
    while (files is None or number < files) and time.monotonic() < end:
        for at, name, outcome in _answers(seed, number, files, end):
            number = at
            found.kinds[name] += 1
            if outcome == "read":
                found.read += 1
            elif outcome == "refused":
                found.refused += 1
            else:
                found.bad.append(f"seed {seed} file {number} ({name}): {outcome}")
        number += 1  # where a process ended, the next goes on behind
    return found


def _answers(
    seed: int, first: int, files: int | None, end: float
) -> Iterator[tuple[int, str, str]]:
    ours, theirs = multiprocessing.get_context("fork").Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(
        target=_work, args=(theirs, seed, first, files, end)
    )
    process.start()
    theirs.close()
    number, name = first, "start"
    try:
        while True:
            if not ours.poll(_PATIENCE):
                yield number, name, f"hangs for {_PATIENCE:g} s"
                return
            message = ours.recv()
            if message is None:
                return
            if len(message) == 2:
                number, name = message
            else:
                yield message
    except EOFError:
        process.join()
        yield number, name, f"the process ended with {process.exitcode}"
    finally:
        process.kill()
        process.join()
        ours.close()


def _work(pipe: Connection, seed: int, first: int, files: int | None, end: float) -> None:
    import torch

    torch.set_num_threads(1)  # threads do not survive a fork
    warnings.simplefilter("ignore")
    logging.disable()  # a cache tells of every entry that it makes again
    # an allocation beyond this is refused, and told apart from a refusal by the file's own size
    space = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (space + 8 * GIB, space + 8 * GIB))
    with tempfile.TemporaryDirectory() as place:
        kinds = subjects(Path(place))
        number = first
        while (files is None or number < files) and time.monotonic() < end:
            subject = kinds[number % len(kinds)]
            pipe.send((number, subject.name))
            folder = Path(place) / str(number)
            folder.mkdir()
            pipe.send((number, subject.name, _outcome(Random(f"{seed}/{number}"), subject, folder)))
            shutil.rmtree(folder)
            number += 1
    pipe.send(None)


def _outcome(random: Random, subject: Subject, folder: Path) -> str:
    data = mutated(random, random.choice(subject.samples), random.choice(subject.samples))
    path = folder / subject.name
    path.write_bytes(data)
    for name, held in subject.around:
        (folder / name).write_bytes(held)
    start, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        subject.read(path)
        outcome = "read"
    except FileError as error:
        outcome = "refused"
        if str(folder) not in str(error) or "more memory than there is" in str(error):
            outcome = f"unnamed, or out of memory: {error}"
    except BaseException:
        outcome = traceback.format_exc()
    took = time.process_time() - start
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    if took > SECONDS:
        outcome = f"takes {took:.1f} s; {outcome}"
    if grown > MEMORY:
        outcome = f"takes {grown / GIB:.1f} GiB; {outcome}"
    return outcome
