import pytest

from pcnn.loggers.run_identity import StepMark, stored_run_id


def test_id_is_made_once_and_kept(tmp_path):
    folder = tmp_path / "logs" / "run"
    first = stored_run_id(folder)
    assert (folder / "run_id.txt").read_text().strip() == first
    assert stored_run_id(folder) == first
    assert stored_run_id(tmp_path / "other") != first
    assert [p.name for p in folder.iterdir()] == ["run_id.txt"]


def test_broken_id_raises(tmp_path):
    (tmp_path / "run_id.txt").write_text("two words\n")
    with pytest.raises(ValueError, match="no run id"):
        stored_run_id(tmp_path)


def test_other_ranks_do_not_write(tmp_path, monkeypatch):
    from lightning.pytorch.utilities import rank_zero_only

    monkeypatch.setattr(rank_zero_only, "rank", 1)
    assert stored_run_id(tmp_path) is None
    assert not list(tmp_path.iterdir())


def test_mark_admits_no_step_twice_across_processes(tmp_path):
    path = tmp_path / "wandb" / "logged_step.txt"
    mark = StepMark(path)
    assert [mark.admits(s) for s in (0, 0, 5, 5, 9)] == [True] * 5
    resumed = StepMark(path)
    assert [resumed.admits(s) for s in (5, 8, 9, 10)] == [False, False, True, True]
    path.write_text("nine")
    with pytest.raises(ValueError, match="not a step"):
        StepMark(path)
