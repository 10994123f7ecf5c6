"""Mutated files read in a process of their own, which is watched: time, memory, and how it ends."""

import logging
import multiprocessing
import resource
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random

import torch

from pcnn.errors import FileError
from tests.fuzz.mutators import mutated
from tests.fuzz.subjects import Subject, subjects

SECONDS = 5.0
GIB = 1 << 30
MEMORY = 2 * GIB
#: No answer for so long is a hang, however busy the machine.
_PATIENCE = 60.0


def fuzzed(seed: int, files: int) -> Iterator[tuple[int, str, str]]:
    """Number, kind, and "read", "refused" or what is bad, of mutated files of all kinds in turn."""
    number = 0
    while number < files:
        for at, name, outcome in _answers(seed, number, files):
            number = at
            yield number, name, outcome
        number += 1  # where a process ended, the next goes on behind


def _answers(seed: int, first: int, files: int) -> Iterator[tuple[int, str, str]]:
    forked = multiprocessing.get_context("fork")
    ours, theirs = forked.Pipe(duplex=False)
    process = forked.Process(target=_work, args=(theirs, seed, first, files))
    process.start()
    theirs.close()
    number, name = first, "start"
    try:
        while ours.poll(_PATIENCE):
            number, name, *outcome = ours.recv()
            if outcome:
                yield number, name, *outcome
            if outcome and number == files - 1:
                return
        yield number, name, f"hangs for {_PATIENCE:g} s"
    except EOFError:
        process.join()
        yield number, name, f"the process ended with {process.exitcode}"
    finally:
        process.kill()
        process.join()
        ours.close()


def _work(pipe: Connection, seed: int, first: int, files: int) -> None:
    torch.set_num_threads(1)  # threads do not survive a fork
    warnings.simplefilter("ignore")
    logging.disable()  # a cache tells of every entry that it makes again
    # an allocation beyond this is refused, and told apart from a refusal by the file's own size
    space = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (space + 8 * GIB, space + 8 * GIB))
    with tempfile.TemporaryDirectory() as place:
        kinds = subjects(Path(place))
        for number in range(first, files):
            subject = kinds[number % len(kinds)]
            pipe.send((number, subject.name))
            folder = Path(place) / str(number)
            folder.mkdir()
            pipe.send((number, subject.name, _outcome(Random(f"{seed}/{number}"), subject, folder)))


def _outcome(random: Random, subject: Subject, folder: Path) -> str:
    path = folder / subject.name
    path.write_bytes(
        mutated(random, random.choice(subject.samples), random.choice(subject.samples))
    )
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
