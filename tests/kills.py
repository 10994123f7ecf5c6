"""Kill trainings by SIGKILL at random moments, resume them, and compare with one that was not.

    python -m tests.kills                    # 200 kills
    python -m tests.kills --kills 20 --seed 5 dataset.num_workers=2

Every run of `train.py` is a fork of this process, which has imported everything: a run takes
seconds. A run is killed up to three times, at moments drawn from the seed, anywhere between its
start and its last file. Where it goes on to its end, everything has to be that of the uninterrupted
run, bit for bit: the weights, the state of the optimiser, of the schedule and of the random
generators, the best state, the figures and every logged value.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # no threads that a fork would lack

import torch
from torch import Tensor

from tests.experiment.command import TINY, forked
from tests.experiment.tiny_kitti import write_tiny_kitti

#: Steps between two checkpoints.
EVERY = 2
#: 5 scans, 12 steps: checkpoints and validations inside and between epochs.
OPTIONS = (
    *TINY,
    "dataset.root=kitti",
    "trainer.max_steps=12",
    f"callbacks.checkpoint.checkpoint_every={EVERY}",
    "logger.csv.flush_logs_every_n_steps=1",
    "callbacks.pictures=null",
)
MOST = 3  # kills of one run
LIMIT = 300.0  # seconds a run may take
#: Figures that differ from run to run: times and memory.
CLOCKS = ("speed/", "memory/")


@dataclass(frozen=True)
class Outcome:
    """The results of a run, by name: plain values and tensors."""

    state: dict[str, Any]
    logged: dict[tuple[int, str], str]


def fork(folder: Path, arguments: Sequence[str]) -> int:
    """Run train.py in a child process; its output goes to `folder`/said.txt. The child's id."""
    said = os.open(folder / "said.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    child = forked("train.py", arguments, folder, said, said)
    os.close(said)
    return child


def ended(child: int, seconds: float) -> int | None:
    """Exit code of a child, negative for a signal; None when it still runs after some time."""
    end = time.monotonic() + seconds
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() >= end:
            return None
        time.sleep(0.002)


def killed(child: int, seconds: float) -> bool:
    """True if a child was killed; False when it had come to its end before.

    Raises:
        RuntimeError: it failed by itself.
    """
    code = ended(child, seconds)
    if code is None:
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
    if code not in (0, -signal.SIGKILL):
        raise RuntimeError(f"a run ended with exit code {code}")
    return code == -signal.SIGKILL


def finish(folder: Path, arguments: Sequence[str]) -> None:
    """Run train.py to its end.

    Raises:
        RuntimeError: it failed, or took too long.
    """
    child = fork(folder, arguments)
    code = ended(child, LIMIT)
    if code is None:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    if code != 0:
        raise RuntimeError(f"train.py {' '.join(arguments)} ended with {code}")


def next_command(folder: Path, name: str, options: Sequence[str]) -> list[str]:
    """How a user goes on: by `resume` where the run had begun."""
    if (folder / name / "config.yaml").is_file():
        return [f"resume={name}"]
    return [*options, f"hydra.run.dir={name}"]


def outcome(run: Path) -> Outcome:
    """Everything that a finished run left and that must not depend on kills."""
    state: dict[str, Any] = {}
    for name in ("last.ckpt", "best.ckpt"):
        content = torch.load(run / "checkpoints" / name, weights_only=True)
        state |= dict(leaves({key: content[key] for key in content if key != "pcnn_config"}, name))
    metrics = json.loads((run / "metrics.json").read_text())
    metrics.pop("revision")  # a commit may come while this runs
    metrics.pop("start", None)  # seconds to the first step
    # these name the run folder
    metrics.pop("checkpoint")
    metrics.pop("config_sha256")
    state |= dict(leaves(metrics, "metrics.json"))
    return Outcome(state, logged_values(run))


def leaves(node: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Plain values and tensors of nested ones, by dotted names, less clocks."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield from leaves(value, f"{name}.{key}")
    elif isinstance(node, (list, tuple)):
        for index, value in enumerate(node):
            yield from leaves(value, f"{name}[{index}]")
    elif not any(clock in name for clock in CLOCKS):
        yield name, node


def logged_values(run: Path) -> dict[tuple[int, str], str]:
    """Values of all csv files of a run, by step and name.

    Raises:
        AssertionError: two files tell different values of one step.
    """
    found: dict[tuple[int, str], str] = {}
    for path in sorted(run.glob("csv/*/metrics.csv")):
        whole = path.read_text().rpartition("\n")[0]  # a kill may tear the last line
        for row in csv.DictReader(whole.splitlines()):
            for key, value in row.items():
                if value and key != "step" and not key.startswith(CLOCKS):
                    before = found.setdefault((int(row["step"]), key), value)
                    assert before == value, f"step {row['step']}, {key}: {before}, then {value}"
    return found


def differences(straight: Outcome, other: Outcome) -> list[str]:
    """Names of what differs."""
    names = straight.state.keys() ^ other.state.keys()
    for name in straight.state.keys() & other.state.keys():
        if not same(straight.state[name], other.state[name]):
            names = names | {name}
    logged = [
        f"logged {key} of step {step}: {straight.logged.get((step, key))}, "
        f"{other.logged.get((step, key))}"
        for step, key in sorted(straight.logged.keys() | other.logged.keys())
        if straight.logged.get((step, key)) != other.logged.get((step, key))
    ]
    return sorted(names) + logged


def same(one: Any, other: Any) -> bool:
    """True if two values have the same bits."""
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        bits = [value.contiguous().reshape(-1).view(torch.uint8) for value in (one, other)]
        return one.dtype == other.dtype and one.shape == other.shape and torch.equal(*bits)
    return type(one) is type(other) and repr(one) == repr(other)


def uninterrupted(folder: Path, options: Sequence[str]) -> tuple[Outcome, float]:
    """The run without a kill, twice with the same outcome; the seconds of the second."""
    finish(folder, [*options, "hydra.run.dir=first"])
    begun = time.monotonic()
    finish(folder, [*options, "hydra.run.dir=straight"])
    seconds = time.monotonic() - begun
    straight = outcome(folder / "straight")
    bad = differences(outcome(folder / "first"), straight)
    if bad:
        raise RuntimeError(f"two runs without a kill differ: {bad[:5]}")
    return straight, seconds


def said(folder: Path) -> list[str]:
    """The last lines that runs printed about errors."""
    lines = (folder / "said.txt").read_text().splitlines()
    return [line for line in lines if "rror" in line or line.startswith("  File")][-8:]


def trial(
    folder: Path,
    name: str,
    wanted: int,
    straight: Outcome,
    seconds: float,
    rng: random.Random,
    options: Sequence[str],
) -> tuple[int, list[str]]:
    """Kill a run up to some times, finish it; kills, and names of what differs."""
    kills = 0
    for _ in range(wanted):
        moment = rng.uniform(0, seconds)
        if not killed(fork(folder, next_command(folder, name, options)), moment):
            break
        kills += 1
    if not (folder / name / "metrics.json").is_file():
        finish(folder, next_command(folder, name, options))
    left = [str(path) for path in (folder / name).rglob("*") if path.suffix == ".part"]
    return kills, left + differences(straight, outcome(folder / name))


def main(arguments: Sequence[str]) -> int:
    """Kill as often as was asked; 1 if anything differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("options", nargs="*", help="further options of train.py")
    chosen = parser.parse_args(arguments)
    options = (*OPTIONS, *chosen.options)
    rng = random.Random(chosen.seed)
    folder = Path(tempfile.mkdtemp(prefix="kills-"))
    kills = runs = failed = 0
    try:
        write_tiny_kitti(folder / "kitti", {0: 5, 8: 2})
        straight, seconds = uninterrupted(folder, options)
        print(f"a run takes {seconds:.1f} s", flush=True)
        while kills < chosen.kills:
            name = f"run_{runs}"
            wanted = min(rng.randint(1, MOST), chosen.kills - kills)
            try:
                done, bad = trial(folder, name, wanted, straight, seconds, rng, options)
            except (RuntimeError, AssertionError, OSError, ValueError) as error:
                done, bad = wanted, [str(error), *said(folder)]
            kills, runs, failed = kills + done, runs + 1, failed + bool(bad)
            for line in bad[:10]:
                print(f"{name}, {done} kills: {line}", flush=True)
            if done and runs % 10 == 0:
                print(f"{kills} kills, {runs} runs, {failed} that differ", flush=True)
            shutil.rmtree(folder / name, ignore_errors=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"seed {chosen.seed}: {kills} kills of {runs} runs, {failed} runs that differ")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
