import time
import warnings

import pytest
import wandb

from pcnn.loggers import wandb as tracker
from pcnn.loggers.wandb import login_problem, resolve_mode


@pytest.fixture(autouse=True)
def _no_credentials(monkeypatch, tmp_path):
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))


def answer(monkeypatch, problem):
    monkeypatch.setattr(tracker, "login_problem", lambda timeout: problem)


@pytest.mark.parametrize(
    ("given", "variable", "problem", "mode"),
    [
        ("disabled", "offline", None, "disabled"),
        (None, "offline", None, "offline"),
        (None, "disabled", None, "disabled"),
        (None, "dryrun", None, "offline"),
        (None, None, None, "online"),
        (None, None, "no credentials", "offline"),
    ],
)
def test_the_option_then_the_variable_then_the_login_without_a_word(
    monkeypatch, given, variable, problem, mode
):
    answer(monkeypatch, problem)
    if variable:
        monkeypatch.setenv("WANDB_MODE", variable)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert resolve_mode(given) == mode


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
    monkeypatch.setattr(wandb, "login", lambda prompt: time.sleep(60))
    start = time.monotonic()
    assert login_problem(timeout=0.2) == "no answer within 0.2 s"
    assert time.monotonic() - start < 5


def test_a_refused_login_says_why(monkeypatch):
    def refuse(prompt):
        raise RuntimeError("refused\nmore")

    monkeypatch.setattr(wandb, "login", refuse)
    assert login_problem() == "refused"
    monkeypatch.setattr(wandb, "login", lambda prompt: True)
    assert login_problem() is None
