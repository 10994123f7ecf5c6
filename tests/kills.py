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
    "callbacks.checkpoint.share=1",
    "logger.csv.flush_logs_every_n_steps=1",
    "callbacks.pictures=null",
)
MOST = 3  # kills of one run
LIMIT = 300.0  # seconds a run may take
#: Figures that differ from run to run: times and memory.
CLOCKS = ("speed/", "memory/")
#: Of metrics.json: a commit may come meanwhile, seconds to the first step, names of the run folder.
OWN = ("revision", "checkpoint", "config_sha256")


def killed(folder: Path, arguments: Sequence[str], seconds: float) -> bool:
    """Run train.py in a child process; True if it was killed before its end.

    Its output goes to `folder`/said.txt. RuntimeError: it failed by itself.
    """
    said = os.open(folder / "said.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    child = forked("train.py", arguments, folder, said, said)
    os.close(said)
    end, done = time.monotonic() + seconds, 0
    while not done and time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        time.sleep(0.002)
    if not done:
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code not in (0, -signal.SIGKILL):
        raise RuntimeError(f"train.py {' '.join(arguments)} ended with {code}")
    return code != 0


def finish(folder: Path, arguments: Sequence[str]) -> None:
    """Run train.py to its end."""
    if killed(folder, arguments, LIMIT):
        raise RuntimeError(f"train.py {' '.join(arguments)} took too long")


def outcome(run: Path) -> dict[str, Any]:
    """Everything that a finished run left and that must not depend on kills, by name."""
    found: dict[str, Any] = {}
    for name in ("last.ckpt", "best.ckpt"):
        content = torch.load(run / "checkpoints" / name, weights_only=True)
        found |= leaves({key: content[key] for key in content if key != "pcnn_config"}, name)
    metrics = json.loads((run / "metrics.json").read_text())
    found |= leaves({key: metrics[key] for key in metrics if key not in OWN}, "metrics.json")
    for path in sorted(run.glob("csv/*/metrics.csv")):
        whole = path.read_text().rpartition("\n")[0]  # a kill may tear the last line
        for row in csv.DictReader(whole.splitlines()):
            for key, value in row.items():
                if value and key != "step" and not key.startswith(CLOCKS):
                    name = f"logged {key} of step {row['step']}"
                    before = found.setdefault(name, value)
                    assert before == value, f"{name}: {before}, then {value}"
    return found


def leaves(node: Any, name: str) -> dict[str, Any]:
    """Plain values and tensors of nested ones, by dotted names, less clocks."""

    def walk(node: Any, name: str) -> Iterator[tuple[str, Any]]:
        if isinstance(node, dict | list | tuple):
            pairs = node.items() if isinstance(node, dict) else enumerate(node)
            for key, value in pairs:
                yield from walk(value, f"{name}.{key}")
        elif not any(clock in name for clock in CLOCKS):
            yield name, node

    return dict(walk(node, name))


def differences(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Names of what differs."""
    both = one.keys() & other.keys()
    return sorted((one.keys() ^ other.keys()) | {n for n in both if not same(one[n], other[n])})


def same(one: Any, other: Any) -> bool:
    """True if two values have the same bits."""
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        bits = [value.contiguous().reshape(-1).view(torch.uint8) for value in (one, other)]
        return one.dtype == other.dtype and one.shape == other.shape and torch.equal(*bits)
    return type(one) is type(other) and repr(one) == repr(other)


def uninterrupted(folder: Path, options: Sequence[str]) -> tuple[dict[str, Any], float]:
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
            run = folder / f"run_{runs}"
            last = kills + min(rng.randint(1, MOST), chosen.kills - kills)

            def command(run: Path = run) -> list[str]:
                """How a user goes on: by `resume` where the run had begun."""
                begun = (run / "config.yaml").is_file()
                return [f"resume={run.name}"] if begun else [*options, f"hydra.run.dir={run.name}"]

            try:
                while kills < last and killed(folder, command(), rng.uniform(0, seconds)):
                    kills += 1
                if not (run / "metrics.json").is_file():
                    finish(folder, command())
                bad = [str(path) for path in run.rglob("*") if path.suffix == ".part"]
                bad += differences(straight, outcome(run))
            except (RuntimeError, AssertionError, OSError, ValueError) as error:
                lines = (folder / "said.txt").read_text().splitlines()
                bad = [str(error), *[one for one in lines if "rror" in one][-8:]]
                kills = last
            runs, failed = runs + 1, failed + bool(bad)
            for line in bad[:10]:
                print(f"{run.name}, {kills} kills: {line}", flush=True)
            shutil.rmtree(run, ignore_errors=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"seed {chosen.seed}: {kills} kills of {runs} runs, {failed} runs that differ")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
