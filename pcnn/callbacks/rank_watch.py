"""End a training on several ranks when one of them is lost, fails or hangs, and say which."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from torch.distributed import DistError

from pcnn.callbacks.checkpoint import Checkpoint, Stopped
from pcnn.callbacks.rank_board import DONE, Beats, RankBoard, Standing, is_gone
from pcnn.callbacks.rank_report import report
from pcnn.escaping import say
from pcnn.lightning_internals import stop_observer
from pcnn.ranges import Positive

EXIT_CODE = 1
#: Seconds that a rank may take to end with its own error, before it is ended.
TO_UNWIND = 30.0


class RankWatch(Callback):
    """Watch the ranks of a training or an evaluation from a thread of each.

    A rank that is killed, fails or hangs leaves the others waiting in a collective, for the half
    hour that torch gives them, and then with an error about sockets. Here all ranks end within
    seconds, and one line of every machine says which rank it was, where it stood, and from which
    checkpoint the run goes on. Ranks tell each other where they are through a store of their own
    (`RankBoard`); no step waits for it. With one rank it does nothing.
    """

    def __init__(
        self,
        timeout: Positive = 900.0,
        pause: Positive = 1.0,
        lost: Positive = 60.0,
        run_folder: str | Path | None = None,
    ) -> None:
        super().__init__()
        self.timeout, self.pause, self.lost = timeout, pause, lost
        self.run_folder = run_folder
        self._board: RankBoard | None = None
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._moved = 0.0
        self._last = ""  # path of the checkpoint to go on from

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Begin to watch."""
        if trainer.world_size == 1 or self._board is not None:
            return
        kept = trainer.checkpoint_callback
        self._last = str(kept.folder / "last.ckpt") if isinstance(kept, Checkpoint) else ""
        self._board = RankBoard(trainer.strategy)
        self._moved = time.monotonic()
        stop_observer()  # it kills all ranks without a word
        self._stop.clear()
        self._thread = threading.Thread(target=self._watch, name="rank-watch", daemon=True)
        self._thread.start()

    def mark(self, doing: str, begun: int = 0) -> None:
        """Note that this rank has come to something else to do."""
        self._moved = time.monotonic()
        if self._board is not None:
            self._board.mine.doing = doing
            self._board.mine.steps += begun

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """A step begins."""
        self.mark(f"trains behind step {trainer.global_step}", begun=1)

    def on_train_batch_end(self, trainer: Trainer, *args: Any, **kwargs: Any) -> None:
        """A step ended: checkpoints and the next batch follow."""
        self.mark(f"is between batches, behind step {trainer.global_step}")

    def on_validation_batch_start(self, *args: Any, **kwargs: Any) -> None:
        """A batch of an evaluation begins."""
        self.mark("evaluates", begun=1)

    def on_validation_batch_end(self, *args: Any, **kwargs: Any) -> None:
        """A batch of an evaluation is done."""
        self.mark("is between batches of an evaluation")

    on_test_batch_start, on_test_batch_end = on_validation_batch_start, on_validation_batch_end

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Leave as planned."""
        self._leave_board()

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        """Tell the other ranks of an error of this one; find whose it is where that is unclear."""
        if self._board is None:
            return
        if isinstance(exception, (Stopped, SystemExit, KeyboardInterrupt)):
            self._leave_board()
            return
        if of_collective(exception):
            # the thread ends this process where it finds the rank whose fault that is
            self._stop.wait(4 * self.pause + 1)
        self._board.mine.error = f"{type(exception).__name__}: {exception}"[:2000]
        self._post()

    def _leave_board(self) -> None:
        board, thread, self._board, self._thread = self._board, self._thread, None, None
        if board is None:
            return
        board.mine.state = DONE
        self._stop.set()
        if thread is not None:
            thread.join()
        try:
            board.post()
        except DistError:
            return  # the first rank has left before

    def _post(self) -> None:
        board = self._board
        if board is not None:
            try:
                board.post()
            except DistError:
                return  # the thread finds out

    def _watch(self) -> None:
        board, beats = self._board, Beats(self.lost)
        assert board is not None
        known, asked = [board.mine], 0.0
        while not self._stop.wait(self.pause):
            board.mine.since = time.monotonic() - self._moved
            first = [one for one in known if one.rank == 0]
            if any(is_gone(one) for one in first) and not self._stop.wait(self.pause):
                self._end(first, known, "is gone")  # and the board with it
            try:
                board.post()
                known = board.read()
            except DistError:
                if self._stop.wait(self.pause):
                    return  # all ranks leave, the first one before this
                self._end(first, known, "is gone")
            living = [one for one in known if one.state != DONE]
            gone = [one for one in living if is_gone(one)]
            if gone:
                self._end(gone, known, "was killed")
            silent = [one for one in living if beats.silent(one)]
            if silent:
                self._end(silent, known, f"gave no sign for {self.lost:.0f} s")
            failed = [one for one in living if one.error]
            if any(one.rank != board.rank for one in failed):
                self._end(failed, known, "failed")
            if failed and board.mine.since > TO_UNWIND:
                os._exit(EXIT_CODE)
            if max((one.since for one in living), default=0.0) > self.timeout:
                asked = asked or time.monotonic()
                board.mine.stack = main_stack()
                waiting = [one for one in living if not one.stack]
                if not waiting or time.monotonic() - asked > 4 * self.pause + 1:
                    self._end(living, known, "hangs")

    def _end(self, culprits: Sequence[Standing], known: Sequence[Standing], what: str) -> None:
        """Say what happened, once a machine, and end this process."""
        assert self._board is not None
        mine = self._board.mine
        here = [
            one.rank
            for one in known
            if one.host == mine.host and not one.error and not is_gone(one)
        ]
        if what == "hangs":
            time.sleep(self.pause)  # the others read the last stack too
        if mine.rank == min(here, default=mine.rank):
            say(
                report(culprits, known, what, self.timeout, self._last, self.run_folder), error=True
            )
        else:
            time.sleep(self.pause)  # the first rank's end would end this one in mid-look
        sys.stdout.flush()
        sys.stderr.flush()
        for child in multiprocessing.active_children():  # workers of loaders
            child.kill()
        os._exit(EXIT_CODE)


def of_collective(error: BaseException) -> bool:
    """True for an error that another rank may have caused: its connection broke."""
    text = str(error).lower()
    return isinstance(error, DistError) or any(
        word in text for word in ("gloo", "nccl", "connection closed", "connection reset")
    )


def main_stack() -> str:
    """Where the main thread of this process stands, innermost call first."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    lines = [
        f"{Path(one.filename).parent.name}/{Path(one.filename).name}:{one.lineno} {one.name}"
        for one in traceback.extract_stack(frame)
    ]
    return "\n".join(reversed(lines))
