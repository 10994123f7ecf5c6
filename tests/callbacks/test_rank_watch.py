"""A rank that is killed, fails or hangs ends all ranks, by name, and the run goes on from there."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from torch.utils.data._utils import worker

from pcnn.callbacks import Checkpoint, RankWatch
from pcnn.callbacks.rank_board import Beats, Standing
from pcnn.callbacks.rank_report import kept, report, suspects
from tests.callbacks.test_agreement import free_port, join_ranks, options
from tests.callbacks.tiny import Data, Task, held, trainer_for
from tests.forking import require_fork

pytestmark = pytest.mark.filterwarnings("ignore")


class Trouble(L.Callback):
    """Something happens to one rank at one batch of the training."""

    def __init__(self, kind: str, rank: int, at: int = 5) -> None:
        self.kind, self.rank, self.at = kind, rank, at

    def on_train_batch_start(self, trainer: Any, *args: Any) -> None:
        if trainer.global_rank != self.rank or trainer.global_step != self.at:
            return
        workers = multiprocessing.active_children()
        Path(trainer.default_root_dir, "workers.txt").write_text(
            " ".join(str(one.pid) for one in workers)
        )
        if self.kind == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.kind == "hangs":
            time.sleep(60)
        if self.kind == "fails":
            raise ValueError("a broken layer")
        if self.kind == "worker":
            os.kill(workers[0].pid or 0, signal.SIGKILL)
        if self.kind == "disk":
            os.fsync = full  # type: ignore[assignment]


def full(file: int) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def train(rank: int, folder: Path, port: int, kind: str, which: int) -> None:
    """A training of two processes, in which something happens."""
    join_ranks(rank, port)
    out = os.open(folder / "said.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(out, 2)
    worker.MP_STATUS_CHECK_INTERVAL = 0.2  # seconds between two looks for the parent
    sys.stderr = open(2, "w")  # noqa: SIM115 - till the end
    watch = RankWatch(timeout=1.0, pause=0.1, run_folder="RUN")
    callbacks = [watch, Trouble(kind, which), Checkpoint(folder, 2, "val/score")]
    # a worker that is lost shows when batches that it made ahead are used up
    most = 24 if kind == "worker" else 8
    settings = options(limit_val_batches=0, num_sanity_val_steps=0, max_steps=most)
    trainer_for(folder, callbacks, **settings).fit(Task(), Data(int(kind in ("worker", "killed"))))


@pytest.mark.parametrize(
    ("kind", "which", "said"),
    [
        ("killed", 1, "rank 1 (process"),
        ("killed", 0, "rank 0 (process"),
        ("hangs", 1, "trains behind step 5, in"),
        ("fails", 1, "ValueError: a broken layer"),
        ("worker", 1, "rank 1 (process"),
        ("disk", 0, "StorageError"),
    ],
)
def test_all_ranks_end_and_say_whose_fault_it_was(
    tmp_path: Path, kind: str, which: int, said: str
) -> None:
    require_fork()
    port, ranks = free_port(), []
    context = multiprocessing.get_context("fork")
    for rank in range(2):
        one = context.Process(target=train, args=(rank, tmp_path, port, kind, which))
        one.start()
        ranks.append(one)
    for one in ranks:
        one.join(30)
    codes = [one.exitcode for one in ranks]
    text = (tmp_path / "said.txt").read_text()
    assert None not in codes, text
    assert 0 not in codes, text
    assert said in text
    steps = held(tmp_path / "last.ckpt")["global_step"]
    assert steps == 4 or (kind == "worker" and steps in (6, 8))
    assert f"kept: {tmp_path / 'last.ckpt'}, step {steps}: resume=RUN goes on" in text
    assert text.count("kept:") == 1
    if kind == "hangs":
        assert "test_rank_watch.py" in text  # the stack, innermost call first
        assert "rank 0" in text.partition("in\n")[2]
    # nothing is left behind
    pids = [*(str(one.pid) for one in ranks), *(tmp_path / "workers.txt").read_text().split()]
    end = time.monotonic() + 10
    while any(Path("/proc", pid).exists() for pid in pids) and time.monotonic() < end:
        time.sleep(0.05)
    assert not [pid for pid in pids if Path("/proc", pid).exists()]
    assert not [name for name in os.listdir("/dev/shm") if any(f"_{pid}_" in name for pid in pids)]
    # the kept state goes on on another number of ranks
    alone = trainer_for(tmp_path, [], max_steps=steps + 2, enable_checkpointing=False)
    task = Task()
    alone.fit(task, Data(), ckpt_path=tmp_path / "last.ckpt", weights_only=True)
    assert alone.global_step == steps + 2
    assert all(torch.isfinite(value).all() for value in task.state_dict().values())


def test_suspects_stand_outside_of_collectives_or_behind() -> None:
    waits = Standing(0, "a", 1, steps=5, stack="torch/distributed_c10d.py:1 barrier")
    works = Standing(1, "a", 2, steps=5, stack="pcnn/read.py:1 read")
    assert suspects([waits, works]) == [works]
    behind = Standing(2, "b", 3, steps=4, stack=waits.stack)
    assert suspects([waits, behind]) == [behind]
    said = report([waits, works], [waits, works], "hangs", 3.0, "", None)
    assert "rank 1 (process 2 on a) of 2 has not moved for 3 s" in said
    assert "rank 0 (process 1 on a) waits for it" in said
    assert kept("", None) in said


def test_a_lost_machine_gives_no_sign() -> None:
    beats, one = Beats(0.05), Standing(0, "elsewhere", 1)
    assert not beats.silent(one)
    time.sleep(0.1)
    assert beats.silent(one)
    one.beat += 1
    assert not beats.silent(one)
