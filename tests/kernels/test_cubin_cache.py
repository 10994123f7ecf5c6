import multiprocessing
import os
import threading
import time
import warnings
from pathlib import Path

import pytest

from pcnn.kernels.cubin_cache import cached, folder
from tests.forking import require_fork

KEY = "ab" * 32


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "pcnn" / "cubin"


def never() -> bytes:
    raise AssertionError("built again")


def test_what_is_stored_is_not_built_again(cache: Path) -> None:
    assert folder() == cache
    assert cached(KEY, lambda: b"code") == b"code"
    assert cached(KEY, never) == b"code"
    assert cached("cd" * 32, lambda: b"other") == b"other"
    assert sorted(path.suffix for path in cache.iterdir()) == ["", "", ".cubin", ".cubin"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda stored: b"",
        lambda stored: stored[:10],
        lambda stored: stored[:-1],
        lambda stored: stored + b"x",
        lambda stored: stored[:-3] + b"xxx",
        lambda stored: bytes(len(stored)),
    ],
    ids=["empty", "cut in the checksum", "cut", "longer", "changed", "zeros"],
)
def test_a_damaged_entry_is_built_anew(cache: Path, damage) -> None:
    cached(KEY, lambda: b"code")
    (entry,) = cache.glob("*.cubin")
    entry.write_bytes(damage(entry.read_bytes()))
    assert cached(KEY, lambda: b"rebuilt") == b"rebuilt"
    assert cached(KEY, never) == b"rebuilt"


def test_a_failed_build_passes_through_and_leaves_nothing(cache: Path) -> None:
    def fails() -> bytes:
        raise OSError("the compiler's own")

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(OSError, match="the compiler's own"):
            cached(KEY, fails)
    assert not list(cache.glob("*.cubin"))
    assert cached(KEY, lambda: b"code") == b"code"


def test_without_a_folder_to_write_in_the_build_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.warns(RuntimeWarning, match=r"cannot be stored .*set XDG_CACHE_HOME") as warned:
        assert cached(KEY, lambda: b"code") == b"code"
    assert len(warned) == 1


def test_a_full_disk_loses_the_entry_and_nothing_else(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(source: object, target: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.warns(RuntimeWarning, match="the disk is full"):
        assert cached(KEY, lambda: b"code") == b"code"
    assert not list(cache.glob("*.cubin"))
    assert not list(cache.glob(".*.part"))


def test_without_a_home_the_build_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", homeless)
    with pytest.warns(RuntimeWarning, match="home directory"):
        assert cached(KEY, lambda: b"code") == b"code"


def slow_build(log: Path) -> bytes:
    """Build that takes long enough for others to arrive, and leaves a mark for every call."""
    with log.open("a") as file:
        file.write("built\n")
    time.sleep(0.2)
    return b"code"


def use(log: Path) -> None:
    assert cached(KEY, lambda: slow_build(log)) == b"code"


def test_processes_that_start_together_build_once(tmp_path: Path) -> None:
    require_fork()
    log = tmp_path / "log"
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=use, args=(log,)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(30)
    assert [process.exitcode for process in processes] == [0] * 4
    assert log.read_text() == "built\n"


def test_threads_that_start_together_build_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    threads = [threading.Thread(target=use, args=(log,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert log.read_text() == "built\n"
