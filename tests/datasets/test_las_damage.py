"""No LAS or LAZ file takes the job down: each is read, or refused by name and rule."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from pcnn.datasets.readers.las_process import Limits, las_process

from pcnn.datasets.readers import las_process as process_module
from pcnn.datasets.readers.clouds import Reading
from pcnn.datasets.readers.las import read_las, write_las_labels
from pcnn.errors import FileError
from tests.datasets.las_files import write_las
from tests.forking import require_fork

CENTRED = Reading(centred=True)


def put(data: bytearray, place: int, kind: str, value: float) -> None:
    struct.pack_into(f"<{kind}", data, place, value)


def start(data: bytearray) -> int:
    """Where the points begin."""
    return int(struct.unpack_from("<I", data, 96)[0])


def table(data: bytearray) -> int:
    """Where the chunk table of a compressed file begins."""
    return int(struct.unpack_from("<q", data, start(data))[0])


ANNOUNCED: dict[str, tuple[str, Callable[[bytearray], None], str]] = {
    "chunks": ("laz", lambda d: put(d, table(d) + 4, "I", 0xFFFFFFFF), "4294967295 chunks; there"),
    "no chunks": ("laz", lambda d: put(d, table(d) + 4, "I", 0), "0 chunks"),
    "place of chunks": ("laz", lambda d: put(d, start(d), "q", 1 << 60), "chunk table lies at"),
    "place before": ("laz", lambda d: put(d, start(d), "q", 3), "chunk table lies at byte 3"),
    "packed points": ("laz", lambda d: put(d, 247, "Q", 0xFFFFFFFF), "4294967295 points of 36"),
    "a few more": ("laz", lambda d: put(d, 247, "Q", 60_000), "60000 points in 1 chunks of 50000"),
    "chunk size": ("laz", lambda d: put(d, d.index(b"laszip") + 64, "I", 7), "in 1 chunks of 7"),
    "item size": ("laz", lambda d: put(d, d.index(b"laszip") + 88, "H", 9999), "compressed points"),
    "compression": ("laz", lambda d: put(d, d.index(b"laszip") + 52, "H", 1), "compression 1"),
    "no laszip": ("laz", lambda d: put(d, d.index(b"laszip"), "B", 0), "the record that says how"),
    "points": ("las", lambda d: put(d, 247, "Q", 0xFFFFFFFF), "announces 4294967295 points, the"),
    "all points": ("las", lambda d: put(d, 247, "Q", (1 << 64) - 1), "announces 1844674407370955"),
    "point length": ("las", lambda d: put(d, 105, "H", 35), "points of 35 bytes; format 7"),
    "no length": ("las", lambda d: put(d, 105, "H", 0), "points of 0 bytes"),
    "format": ("las", lambda d: put(d, 104, "B", 11), "unknown point format 11"),
    "offset": ("las", lambda d: put(d, 96, "I", 0xFFFFFFF0), "points at byte 4294967280"),
    "offset in header": ("las", lambda d: put(d, 96, "I", 40), "points at byte 40"),
    "header": ("las", lambda d: put(d, 94, "H", 100), "a header of 100 bytes"),
    "version": ("las", lambda d: put(d, 25, "B", 9), "version 1.9"),
    "records": ("las", lambda d: put(d, 100, "I", 0xFFFFFFFF), "4294967295 records in front of"),
    "extended": ("las", lambda d: put(d, 243, "I", 0xFFFFFFFF), "extended records at byte 0"),
    "scale": ("las", lambda d: put(d, 131, "d", float("nan")), "scale factors"),
    "flat": ("las", lambda d: put(d, 139, "d", 0.0), "scale factors"),
    "signature": ("las", lambda d: put(d, 0, "I", 0), "not LASF"),
}


def test_announcements_are_held_against_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # no library sees the file
    monkeypatch.setattr(process_module.LasProcess, "ask", lambda *_: pytest.fail("was read"))
    for name, (suffix, damage, rule) in ANNOUNCED.items():
        path = tmp_path / f"{name}.{suffix}"
        write_las(path)
        data = bytearray(path.read_bytes())
        damage(data)
        path.write_bytes(data)
        with pytest.raises(FileError) as error:
            read_las(path)
        assert str(path) in str(error.value), name
        assert rule in error.value.rule, name


def test_extended_records_beyond_the_file(tmp_path: Path) -> None:
    write_las(tmp_path / "a.las")
    data = bytearray((tmp_path / "a.las").read_bytes())
    put(data, 235, "Q", len(data))
    put(data, 243, "I", 1)
    data += bytes(20) + struct.pack("<Q", 1 << 62) + bytes(32)
    (tmp_path / "a.las").write_bytes(data)
    with pytest.raises(FileError, match="extended records reach beyond their end"):
        read_las(tmp_path / "a.las")


def test_one_process_reads_all_files(tmp_path: Path) -> None:
    clouds = []
    for seed in range(3):
        write_las(tmp_path / f"{seed}.laz", 40 + seed, seed=seed)
        clouds.append(read_las(tmp_path / f"{seed}.laz"))
        pid = las_process(os.getpid()).pid
        assert pid not in (None, os.getpid())
    # columns of clouds in any order
    assert [len(clouds[n].column("intensity")) for n in (0, 2, 1)] == [40, 42, 41]
    assert las_process(os.getpid()).pid == pid


def test_a_library_that_aborts_costs_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_las(tmp_path / "a.las")
    aborts = process_module._START.replace("main()", "P.answer = lambda *_: os.abort(); main()")
    aborts = aborts.replace("import main", "import main, os, LasProgram as P")
    las_process(os.getpid()).close()
    with monkeypatch.context() as patched:
        patched.setattr(process_module, "_START", aborts)
        with pytest.raises(FileError, match=r"a\.las: the process .* ended by SIGABRT"):
            read_las(tmp_path / "a.las")
    assert len(read_las(tmp_path / "a.las")) == 40


def test_a_process_that_was_ended_or_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_las(tmp_path / "a.las")
    read_las(tmp_path / "a.las")
    running = las_process(os.getpid())
    assert running._process is not None
    running._process.kill()
    running._process.wait()
    assert len(read_las(tmp_path / "a.las")) == 40  # no file is to blame
    running.close()
    with monkeypatch.context() as patched:
        patched.setattr(process_module, "_START", "import nothing_of_this_name")
        with pytest.raises(ImportError, match=r"a\.las: .* does not start; .*nothing_of_this_name"):
            read_las(tmp_path / "a.las")
    assert len(read_las(tmp_path / "a.las")) == 40


def test_limits(tmp_path: Path) -> None:
    las = write_las(tmp_path / "a.las", 100_000)
    write_las_labels(tmp_path / "a.laz", tmp_path / "a.las", np.asarray(las.classification))
    write_las(tmp_path / "b.las")
    for limits, rule in (
        (Limits(memory=1 << 20, seconds=60), "more than 1 MiB of memory"),
        (Limits(memory=1 << 30, seconds=1e-4), "more than 0.0001 s"),
    ):
        las_process(os.getpid()).close()  # memory that it has kept would serve
        with pytest.raises(FileError) as error:
            read_las(tmp_path / "a.laz", limits)
        assert str(tmp_path / "a.laz") in str(error.value)
        assert rule in error.value.rule
        assert len(read_las(tmp_path / "b.las")) == 40


def test_an_interrupted_read_leaves_no_reply_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_las(tmp_path / "a.las", 40)
    write_las(tmp_path / "b.las", 41)
    read_las(tmp_path / "a.las")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(process_module, "receive", interrupt)
        with pytest.raises(KeyboardInterrupt):
            read_las(tmp_path / "a.las")
    assert len(read_las(tmp_path / "b.las")) == 41


def test_a_file_that_changes_is_refused(tmp_path: Path) -> None:
    write_las(tmp_path / "a.las", 40)
    las = read_las(tmp_path / "a.las")
    write_las(tmp_path / "a.las", 41)
    with pytest.raises(FileError, match=r"a\.las: it changed while it was read"):
        las.column("intensity")


def test_a_copy_that_cannot_be_written_is_a_system_error(tmp_path: Path) -> None:
    write_las(tmp_path / "a.las", 20_000)
    las = read_las(tmp_path / "a.las")
    request = {"task": "copy", "target": "/dev/full", "packed": False, "rows": None}
    with pytest.raises(OSError, match="No space left"):
        las._ask({**request, "classes": False})
    assert len(read_las(tmp_path / "a.las")) == 20_000


def test_the_process_ends_with_its_caller(tmp_path: Path) -> None:
    require_fork()
    write_las(tmp_path / "a.las")
    read_las(tmp_path / "a.las")
    mine = las_process(os.getpid()).pid
    child = os.fork()
    if not child:  # a process of its own, which dies without a word
        read_las(tmp_path / "a.las")
        (tmp_path / "pid").write_text(str(las_process(os.getpid()).pid))
        os._exit(0)
    os.waitpid(child, 0)
    theirs = int((tmp_path / "pid").read_text())
    assert theirs != mine
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        state = Path(f"/proc/{theirs}/stat")
        if not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z":
            break
        time.sleep(0.05)
    else:
        pytest.fail(f"process {theirs} outlives its caller")
    assert len(read_las(tmp_path / "a.las")) == 40
    assert las_process(os.getpid()).pid == mine
