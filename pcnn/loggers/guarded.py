"""Loggers that may fail without taking the training with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities import rank_zero_warn

from pcnn.lightning_internals import DummyExperiment

T = TypeVar("T")
L = TypeVar("L", bound=Logger)

PATIENCE = 5  # failures in a row after which a logger is not asked again


class GuardedLogger(Logger):
    """Pass everything on to another logger and outlive its errors.

    A tracker that is unreachable, a full disk or a value that a backend refuses must not end hours
    of training. The first error of each kind is shown as a warning; after 5 calls in a row have
    failed the logger is left alone, because each of them may have waited for a time limit.
    KeyboardInterrupt and the like pass through.
    """

    def __init__(self, inner: Logger) -> None:
        super().__init__()
        self.inner = inner
        self._failures = 0
        self._warned: set[str] = set()
        self._row: tuple[int | None, str] | None = None  # what was logged last

    def guard(self, what: str, call: Callable[[], T], otherwise: T) -> T:
        """Return ``call()``, or `otherwise` when it fails or the logger was given up."""
        if self._failures >= PATIENCE:
            return otherwise
        try:
            answer = call()
        except Exception as error:
            self._failures += 1
            kind = f"{what}: {type(error).__name__}"
            if kind not in self._warned:
                self._warned.add(kind)
                rank_zero_warn(
                    f"{type(self.inner).__name__} failed to {what} ({error}); training goes on"
                )
            if self._failures == PATIENCE:
                rank_zero_warn(
                    f"{type(self.inner).__name__} failed {PATIENCE} times in a row and is switched "
                    "off; files of the run folder are still written"
                )
            return otherwise
        self._failures = 0
        return answer

    @property
    def experiment(self) -> Any:
        """The inner logger's experiment, or one that ignores everything."""
        inner: Any = self.inner
        return self.guard("start", lambda: inner.experiment, DummyExperiment())

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Log figures, unless they are those of the call before."""
        row = (step, repr(metrics))  # NaN equals itself in writing
        if row == self._row:
            return
        self._row = row
        self.guard("log metrics", lambda: self.inner.log_metrics(metrics, step), None)

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """Log hyper-parameters."""
        self.guard(
            "log hyper-parameters",
            lambda: self.inner.log_hyperparams(params, *args, **kwargs),
            None,
        )

    def log_graph(self, model: Any, input_array: Any = None) -> None:
        """Log the model's graph."""
        self.guard("log the graph", lambda: self.inner.log_graph(model, input_array), None)

    def save(self) -> None:
        """Write what is pending."""
        self.guard("save", self.inner.save, None)

    def finalize(self, status: str) -> None:
        """End a stage."""
        self.guard("finalize", lambda: self.inner.finalize(status), None)

    def after_save_checkpoint(self, checkpoint_callback: Any) -> None:
        """Take note of a checkpoint."""
        self.guard(
            "note a checkpoint",
            lambda: self.inner.after_save_checkpoint(checkpoint_callback),
            None,
        )

    def finish(self) -> None:
        """End the run, for loggers that have such an end (W&B)."""
        end = getattr(self.inner, "finish", None)
        if end is not None:
            self.guard("finish", end, None)

    @property
    def name(self) -> str | None:
        """Name of the inner logger."""
        return self.inner.name

    @property
    def version(self) -> int | str | None:
        """Version of the inner logger."""
        return self.inner.version

    @property
    def save_dir(self) -> str | None:
        """Folder the inner logger writes to."""
        return self.inner.save_dir

    @property
    def root_dir(self) -> str | None:
        """Parent folder of the inner logger's versions."""
        return self.inner.root_dir

    @property
    def log_dir(self) -> str | None:
        """Folder of the inner logger's version."""
        return self.inner.log_dir

    @property
    def group_separator(self) -> str:
        """Separator of groups in names."""
        return self.inner.group_separator


def guard(loggers: Iterable[Logger]) -> list[Logger]:
    """Guard every logger of a trainer."""
    return [one if isinstance(one, GuardedLogger) else GuardedLogger(one) for one in loggers]


def finish(loggers: Iterable[Logger]) -> None:
    """End every run that has an end; call it when a job is over, also after an error."""
    for logger in loggers:
        if isinstance(logger, GuardedLogger):
            logger.finish()


def find(loggers: Iterable[Logger], kind: type[L]) -> list[tuple[GuardedLogger, L]]:
    """Return the loggers of a kind, guarded or not, each with a guard to call it through."""
    found = []
    for logger in guard(loggers):
        assert isinstance(logger, GuardedLogger)
        if isinstance(logger.inner, kind):
            found.append((logger, logger.inner))
    return found
