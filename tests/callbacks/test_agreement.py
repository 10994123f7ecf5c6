"""Two processes agree on signals and time without waiting for each other."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from torch import multiprocessing as mp

from pcnn.callbacks import Checkpoint, StopOnSignal, Stopped, stop_signals
from pcnn.callbacks.agreement import Agreement
from tests.callbacks.test_stop import Send
from tests.callbacks.tiny import Data, Task, held, trainer_for
from tests.forking import require_fork

pytestmark = pytest.mark.filterwarnings("ignore")


def on_two_ranks(function: Any, folder: Path) -> None:
    """Call a function with rank and folder in two processes, as a launcher starts them."""
    require_fork()
    mp.start_processes(_run, (function, folder, free_port()), nprocs=2, start_method="fork")


def alike_on_two_ranks(function: Any, folder: Path) -> Any:
    """The content that both ranks wrote into `folder`/RANK.json, which has to be the same."""
    on_two_ranks(function, folder)
    first, second = (json.loads((folder / f"{rank}.json").read_text()) for rank in range(2))
    assert first == second
    return first


def free_port() -> int:
    """A port that no process listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _run(rank: int, function: Any, folder: Path, port: int) -> None:
    join_ranks(rank, port)
    function(rank, folder)


def join_ranks(rank: int, port: int) -> None:
    """Let this process be one of two ranks, as a launcher does."""
    torch.set_num_threads(1)
    names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2}
    names |= {"GROUP_RANK": 0, "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in names.items()})
    os.environ.update(MASTER_ADDR="127.0.0.1", TORCHELASTIC_RUN_ID="none")


def ask(rank: int, folder: Path) -> None:
    torch.distributed.init_process_group("gloo")
    agreement, flag = Agreement(), folder / "first"
    if rank == 1:
        while not flag.exists():  # the other one does not wait for this first question
            time.sleep(0.01)
    assert agreement.ask(rank * 5) == 0
    flag.touch()
    assert agreement.ask(0) == 5
    assert agreement.ask(1 - rank) == 0
    assert agreement.ask(0) == 1
    assert agreement.ask(3 * rank, now=True) == 3
    assert agreement.ask(0) == 0
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def test_answers_come_one_question_later(tmp_path: Path) -> None:
    on_two_ranks(ask, tmp_path)


def options(**more: Any) -> dict[str, Any]:
    return {"strategy": "ddp", "devices": 2, "use_distributed_sampler": False, **more}


def stop(rank: int, folder: Path) -> None:
    for at, last in ((3, 5), (8, 10)):
        with stop_signals(speaks=False) as signals:
            send = [Send(signal.SIGINT, at_batch=at)] if rank else []
            kept = Checkpoint(folder, 100, "val/score")
            callbacks = [*send, StopOnSignal(signals), kept]
            trainer = trainer_for(folder, callbacks, **options())
            path = kept.last_model_path or None
            with pytest.raises(Stopped) as error:
                trainer.fit(Task(), Data(), ckpt_path=path)
        assert error.value.code == 130
        assert trainer.global_step == last
        trainer.strategy.barrier()
        assert held(folder / "last.ckpt")["global_step"] == last
        trainer.strategy.barrier()


def test_all_ranks_stop_at_one_step_for_a_signal_to_one(tmp_path: Path) -> None:
    on_two_ranks(stop, tmp_path)


class Breaks(L.Callback):
    """A signal to this process in a validation."""

    def on_validation_batch_start(self, trainer: Any, *args: Any, **kwargs: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)


def evaluate(rank: int, folder: Path) -> None:
    with stop_signals(speaks=False) as signals:
        callbacks = [*([Breaks()] if rank else []), StopOnSignal(signals)]
        trainer = trainer_for(folder, callbacks, **options())
        with pytest.raises(Stopped):
            trainer.validate(Task(), Data(), verbose=False)


def test_all_ranks_leave_an_evaluation_for_a_signal_to_one(tmp_path: Path) -> None:
    on_two_ranks(evaluate, tmp_path)
