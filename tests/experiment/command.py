"""Run train.py and eval.py, as a user does."""

from __future__ import annotations

import gc
import importlib
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path

import torch
from hydra.core.global_hydra import GlobalHydra

REPOSITORY = Path(__file__).parents[2]
#: Variables that a run sees besides those of the tests.
VARIABLES = {"OMP_NUM_THREADS": "1", "WANDB_MODE": "offline", "WANDB_SILENT": "true"}

#: Modules that a run imports as late as it can: here they are imported once for all runs.
IMPORTED = ("pcnn.experiment.run", "pcnn.visualize.segmentation", "torch._dynamo", "wandb")

#: A training of seconds on `tests.experiment.tiny_kitti`, validation inside the epoch included.
TINY = (
    "model.width=0.125",
    "dataset.train_sequences=[0]",
    "dataset.voxel_size=0.4",
    "dataset.batch_size=1",
    "dataset.num_workers=0",
    "trainer=cpu",
    "trainer.max_steps=6",
    "trainer.val_check_interval=3",
    "trainer.log_every_n_steps=1",
    "logger=csv",
)
#: Two processes on the CPU, as with several GPUs.
TWO_PROCESSES = (
    *("trainer=ddp", "trainer.accelerator=cpu", "trainer.devices=2"),
    "trainer.sync_batchnorm=false",
)
#: For runs whose pictures nothing looks at: each takes a second.
QUICK = ("++callbacks.pictures=null",)


def run(
    program: str, *arguments: str, cwd: Path, expect: int | None = 0, timeout: float = 240
) -> subprocess.CompletedProcess[str]:
    """Run a program of the repository in a folder; its exit code must be `expect`.

    The run is a fork of this process, which has imported everything already. It is a process of its
    own where CUDA forbids forks.
    """
    if torch.cuda.is_available():
        done = subprocess.run(
            [sys.executable, str(REPOSITORY / program), *arguments],
            cwd=cwd,
            env={**os.environ, **VARIABLES},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            start_new_session=True,  # signals to its group are not for the tests
        )
    else:
        done = _finished(program, arguments, cwd, timeout)
    assert expect is None or done.returncode == expect, f"{done.stdout}\n{done.stderr}"
    return done


def forked(program: str, arguments: Sequence[str], cwd: Path, out: int, err: int) -> int:
    """Run a program in a fork of this process, which prints to two open files; its id."""
    for name in IMPORTED:
        importlib.import_module(name)
    child = os.fork()
    if not child:
        # what lies about here is the parent's: a loader collected here would wait for its workers
        gc.freeze()
        _run_here([str(REPOSITORY / program), *arguments], cwd, out, err)
    return child


def _finished(
    program: str, arguments: Sequence[str], cwd: Path, timeout: float
) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryFile("w+b") as out, tempfile.TemporaryFile("w+b") as err:
        child = forked(program, arguments, cwd, out.fileno(), err.fileno())
        end = time.monotonic() + timeout
        done, status = os.waitpid(child, os.WNOHANG)
        while not done and time.monotonic() < end:
            time.sleep(0.01)
            done, status = os.waitpid(child, os.WNOHANG)
        if not done:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise subprocess.TimeoutExpired([program, *arguments], timeout)
        out.seek(0), err.seek(0)
        code = os.waitstatus_to_exitcode(status)
        said, wrong = out.read().decode(), err.read().decode()
    return subprocess.CompletedProcess([program, *arguments], code, said, wrong)


def _run_here(words: list[str], cwd: Path, out: int, err: int) -> None:
    """Become the program: this process, a fork of the tests, ends here."""
    code = 1
    try:
        os.setsid()  # signals to its group are not for the tests
        os.chdir(cwd)
        os.environ.update(VARIABLES)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        sys.stdout, sys.stderr = open(1, "w"), open(2, "w")  # noqa: SIM115 - till the end
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        importlib.reload(warnings)  # pytest collects them
        warnings.resetwarnings()
        GlobalHydra.instance().clear()
        sys.path[:0] = [str(REPOSITORY)]
        sys.argv[:] = words
        code = 0
        runpy.run_path(words[0], run_name="__main__")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # the child must not go on as its parent
        traceback.print_exc()
        code = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
