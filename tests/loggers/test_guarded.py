import warnings

import pytest
from lightning.pytorch.loggers import CSVLogger, Logger

from pcnn.loggers import GuardedLogger, find, finish, guard
from tests.callbacks.tiny import Data, Task, trainer_for


class Failing(Logger):
    """Raises at every call."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    name = "failing"
    version = 0

    @property
    def experiment(self):
        raise ConnectionError("no tracker")

    def log_metrics(self, metrics, step=None):
        self.calls += 1
        raise ConnectionError("no tracker")

    def log_hyperparams(self, params, *args, **kwargs):
        raise ValueError("bad value")

    def save(self):
        raise OSError("disk full")

    def finalize(self, status):
        raise OSError("disk full")

    def finish(self):
        raise OSError("disk full")


@pytest.mark.filterwarnings("ignore:Failing")
def test_training_survives_a_logger_that_always_fails(tmp_path):
    failing = Failing()
    csv = CSVLogger(tmp_path)
    loggers = guard([failing, csv])
    trainer = trainer_for(
        tmp_path, [], logger=loggers, max_steps=20, log_every_n_steps=1, enable_checkpointing=False
    )
    trainer.fit(Task(), Data())
    assert trainer.global_step == 20
    assert 0 < failing.calls <= 5  # given up after that
    assert "train/loss" in (tmp_path / "lightning_logs/version_0/metrics.csv").read_text()
    finish(loggers)


def test_without_the_guard_it_would_stop(tmp_path):
    trainer = trainer_for(tmp_path, [], logger=[Failing()], max_steps=2)
    with pytest.raises((ConnectionError, ValueError, OSError)):
        trainer.fit(Task(), Data())


def test_warns_once_a_kind_and_recovers():
    class Sometimes(Failing):
        def log_metrics(self, metrics, step=None):
            self.calls += 1
            if step != 4:
                raise ConnectionError("no tracker")

    inner = Sometimes()
    logger = GuardedLogger(inner)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step in range(8):
            logger.log_metrics({}, step)
    assert inner.calls == 8  # step 4 succeeded: the count began again
    assert [str(w.message) for w in caught] == [
        "Sometimes failed to log metrics (no tracker); training goes on"
    ]


def test_interrupts_pass():
    class Interrupted(Failing):
        def save(self):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        GuardedLogger(Interrupted()).save()


def test_find_reaches_through_guards(tmp_path):
    csv = CSVLogger(tmp_path)
    for loggers in ([csv], guard([csv, Failing()]), guard(guard([csv]))):
        ((_, found),) = find(loggers, CSVLogger)
        assert found is csv
    assert not find([Failing()], CSVLogger)
    assert guard([csv])[0].log_dir == csv.log_dir


def test_figures_that_are_logged_twice_in_a_row_are_passed_on_once(tmp_path):
    class Counting(CSVLogger):
        rows = 0

        def log_metrics(self, metrics, step=None):
            self.rows += 1

    inner = Counting(tmp_path)
    (logger,) = guard([inner])
    for value, step in ((float("nan"), 1), (float("nan"), 1), (2.0, 1), (2.0, 2)):
        logger.log_metrics({"a": value}, step)
    assert inner.rows == 3
