import pytest

from pcnn.callbacks import TrainingProgress, progress
from tests.callbacks.segmenting import Clouds, Segmenting
from tests.callbacks.tiny import trainer_for


def fit(tmp_path, bar, **options):
    options = {
        "max_steps": 12,
        "enable_checkpointing": False,
        "enable_progress_bar": True,
    } | options
    trainer = trainer_for(tmp_path, [bar], **options)
    trainer.fit(Segmenting(), Clouds())
    return trainer


def test_lines_where_there_is_no_terminal(tmp_path, capsys):
    trainer = fit(tmp_path, TrainingProgress(every_n_steps=5))
    lines = capsys.readouterr().out.strip().splitlines()
    steps = [line.split()[1] for line in lines if line.startswith("step ")]
    assert steps == ["5/12", "10/12", "12/12"]
    assert all("loss " in line and "mIoU 0.25" in line for line in lines if "step/" in line)
    assert "s/step, 0:00 left" in lines[-2] + lines[-1]
    validations = [line for line in lines if line.startswith("validation at step")]
    assert [line.split()[3] for line in validations] == ["6", "12"]
    assert all("mIoU (present)" in line for line in validations)
    assert len(lines) == 5
    trainer.test(Segmenting(), Clouds(), verbose=False)
    # its weights need not be those of step 12
    assert capsys.readouterr().out.startswith("test  mIoU")
    trainer_for(tmp_path, [TrainingProgress()], enable_progress_bar=True).test(
        Segmenting(), Clouds(), verbose=False
    )
    assert capsys.readouterr().out.startswith("test  mIoU")  # this trainer knows of no steps


def test_one_bar_on_a_terminal(tmp_path, capsys):
    bar = TrainingProgress(every_n_steps=10, terminal=True)
    fit(tmp_path, bar)
    text = capsys.readouterr().out
    assert "12/12" in text
    assert "mIoU 0.25" in text
    assert bar._bars is None


def test_the_bar_is_closed_when_training_fails(tmp_path):
    class Failing(Segmenting):
        def training_step(self, batch, batch_idx):
            raise RuntimeError("stop")

    bar = TrainingProgress(terminal=True)
    trainer = trainer_for(
        tmp_path, [bar], enable_progress_bar=True, enable_checkpointing=False, max_steps=2
    )
    with pytest.raises(RuntimeError, match="stop"):
        trainer.fit(Failing(), Clouds())
    assert bar._bars is None


def test_accumulated_steps_and_endless_training(tmp_path, capsys):
    fit(tmp_path, TrainingProgress(every_n_steps=1), accumulate_grad_batches=3, max_steps=3)
    lines = [x for x in capsys.readouterr().out.splitlines() if x.startswith("step ")]
    assert [line.split()[1] for line in lines] == ["1/3", "2/3", "3/3"]


def test_slow_steps_have_a_line_each(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(progress, "QUIET", 0.0)
    fit(tmp_path, TrainingProgress(every_n_steps=50), max_steps=3)
    lines = [x for x in capsys.readouterr().out.splitlines() if x.startswith("step ")]
    assert [line.split()[1] for line in lines][-2:] == ["2/3", "3/3"]


def test_other_ranks_are_silent(tmp_path, capsys):
    bar = TrainingProgress(every_n_steps=1)
    bar.disable()
    fit(tmp_path, bar, max_steps=2)
    assert not capsys.readouterr().out
    with pytest.raises(ValueError, match="at least 1"):
        TrainingProgress(0)
