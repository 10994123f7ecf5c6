import time
import warnings

import pytest

from pcnn.loggers import wandb as tracker
from pcnn.loggers.wandb import login_problem, resolve_mode


@pytest.fixture(autouse=True)
def _no_credentials(monkeypatch, tmp_path):
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))


def answer(monkeypatch, problem):
    monkeypatch.setattr(tracker, "login_problem", lambda timeout: problem)


def test_given_mode_wins(monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert resolve_mode("disabled") == "disabled"


@pytest.mark.parametrize(
    ("variable", "mode"), [("offline", "offline"), ("disabled", "disabled"), ("dryrun", "offline")]
)
def test_then_the_variable(monkeypatch, variable, mode):
    answer(monkeypatch, None)
    monkeypatch.setenv("WANDB_MODE", variable)
    assert resolve_mode() == mode


@pytest.mark.parametrize(("problem", "mode"), [(None, "online"), ("no credentials", "offline")])
def test_then_the_login_without_a_word(monkeypatch, problem, mode):
    answer(monkeypatch, problem)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert resolve_mode() == mode


@pytest.mark.parametrize(
    ("given", "problem"), [("online", "no credentials, ..."), (None, "no network")]
)
def test_a_login_that_should_have_worked_is_worth_a_warning(monkeypatch, given, problem):
    answer(monkeypatch, problem)
    with pytest.warns(UserWarning, match=f"{problem}.*offline") as caught:
        assert resolve_mode(given) == "offline"
    assert len(caught) == 1


def test_unknown_mode_raises(monkeypatch):
    with pytest.raises(ValueError, match=r"logger mode is 'of'.*online, offline, disabled"):
        resolve_mode("of")
    monkeypatch.setenv("WANDB_MODE", "maybe")
    with pytest.raises(ValueError, match="WANDB_MODE is 'maybe'"):
        resolve_mode()


def test_no_credentials_are_known_at_once():
    start = time.monotonic()
    assert "no credentials" in login_problem()
    assert time.monotonic() - start < 5


def test_a_hanging_login_is_given_up(monkeypatch):
    import wandb

    monkeypatch.setattr(wandb, "login", lambda prompt: time.sleep(60))
    start = time.monotonic()
    assert login_problem(timeout=0.2) == "no answer within 0.2 s"
    assert time.monotonic() - start < 5


def test_a_refused_login_says_why(monkeypatch):
    import wandb

    def refuse(prompt):
        raise RuntimeError("refused\nmore")

    monkeypatch.setattr(wandb, "login", refuse)
    assert login_problem() == "refused"
    monkeypatch.setattr(wandb, "login", lambda prompt: True)
    assert login_problem() is None
