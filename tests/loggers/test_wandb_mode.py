import time

import pytest

from pcnn.loggers import wandb_mode
from pcnn.loggers.wandb_mode import logged_in, resolve_mode


@pytest.fixture(autouse=True)
def _no_credentials(monkeypatch, tmp_path):
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))


def answer(monkeypatch, value):
    monkeypatch.setattr(wandb_mode, "logged_in", lambda timeout: value)


def test_given_mode_wins(monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert resolve_mode("disabled") == "disabled"


@pytest.mark.parametrize(
    ("variable", "mode"), [("offline", "offline"), ("disabled", "disabled"), ("dryrun", "offline")]
)
def test_then_the_variable(monkeypatch, variable, mode):
    answer(monkeypatch, True)
    monkeypatch.setenv("WANDB_MODE", variable)
    assert resolve_mode() == mode


@pytest.mark.parametrize(("login", "mode"), [(True, "online"), (False, "offline")])
def test_then_the_login(monkeypatch, login, mode):
    answer(monkeypatch, login)
    assert resolve_mode() == mode


def test_online_without_login_is_offline_with_a_warning(monkeypatch):
    answer(monkeypatch, False)
    with pytest.warns(UserWarning, match="wandb login"):
        assert resolve_mode("online") == "offline"


def test_unknown_mode_raises(monkeypatch):
    with pytest.raises(ValueError, match=r"logger mode is 'of'.*online, offline, disabled"):
        resolve_mode("of")
    monkeypatch.setenv("WANDB_MODE", "maybe")
    with pytest.raises(ValueError, match="WANDB_MODE is 'maybe'"):
        resolve_mode()


def test_no_credentials_means_no_login_at_once():
    start = time.monotonic()
    assert not logged_in()
    assert time.monotonic() - start < 5


def test_a_hanging_login_is_given_up(monkeypatch):
    import wandb

    monkeypatch.setattr(wandb, "login", lambda prompt: time.sleep(60))
    start = time.monotonic()
    assert not logged_in(timeout=0.2)
    assert time.monotonic() - start < 5


def test_a_failing_login_is_no_login(monkeypatch):
    import wandb

    def refuse(prompt):
        raise RuntimeError("refused")

    monkeypatch.setattr(wandb, "login", refuse)
    with pytest.warns(UserWarning, match="refused"):
        assert not logged_in()
