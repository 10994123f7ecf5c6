import json
import multiprocessing
import os
import warnings
from pathlib import Path

import pytest
import torch

from pcnn.dataflows import Blocked, Reference
from pcnn.dataflows.products import Product
from pcnn.dataflows.tuned import forget, place, signature_of, tuned
from pcnn.dataflows.tuning_file import SHIPPED, read, save, shipped_path, user_path
from pcnn.dataflows.tuning_table import (
    Bucket,
    Choice,
    LayoutCosts,
    MapSize,
    Signature,
    TuningTable,
)
from tests.forking import require_fork

HERE = Signature("GPU sm_90", "3.6", "float16", 32, 64, 1, 27, "forward")
CPU = torch.device("cpu")


def row(channels: int, rows: int = 17) -> TuningTable:
    signature = Signature("GPU sm_90", "3.6", "float16", channels, 64, 1, 27, "forward")
    return TuningTable([(signature, Bucket(rows, 2.0), (Choice(Blocked(), 0.5),))])


def test_what_is_saved_is_read(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "tuned.json"
    assert len(read(path)) == 0
    assert list(save(path, row(1))) == list(row(1))
    assert list(read(path)) == list(row(1))


def test_times_of_layouts_are_kept_beside_decisions(tmp_path: Path) -> None:
    path = tmp_path / "tuned.json"
    size = MapSize("GPU sm_90", "3.6", "symmetric", "table", 27, 17, 2.5)
    times = [(size, ("fitting_tiles",), 0.5), (size, ("pairs", "counts"), 0.25)]
    save(path, row(1))
    save(path, TuningTable(costs=LayoutCosts(times[:1])))
    save(path, TuningTable(costs=LayoutCosts(times[1:])))
    assert list(read(path)) == list(row(1))
    assert list(read(path).costs) == times
    assert read(path).costs.get(size, ("pairs", "counts")) == 0.25
    assert read(path).costs.get(size, ("pairs",)) is None
    # the newer time counts
    save(path, TuningTable(costs=LayoutCosts([(*times[0][:2], 2.0)])))
    assert read(path).costs.get(size, ("fitting_tiles",)) == 2.0


@pytest.mark.parametrize("entry", ["{}", "3", '{"names": ["table"], "ms": 1.0}'])
def test_damaged_times_of_layouts_are_warned_of(tmp_path: Path, entry: str) -> None:
    path = tmp_path / "tuned.json"
    path.write_text(f'{{"format": 1, "rows": [], "layouts": [{entry}]}}')
    with pytest.warns(RuntimeWarning, match="is no time of layouts"):
        assert len(read(path).costs) == 0


@pytest.mark.parametrize(
    "text", ["", "{", '{"format": 1', "null", '{"format": 99, "rows": []}', "\x00\xff"]
)
def test_a_damaged_or_foreign_file_is_warned_of_and_written_anew(tmp_path: Path, text: str) -> None:
    path = tmp_path / "tuned.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.warns(RuntimeWarning, match="is not used"):
        assert len(read(path)) == 0
    with pytest.warns(RuntimeWarning, match="is not used"):
        save(path, row(3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(read(path)) == list(row(3))


def test_a_writer_that_dies_leaves_the_old_file_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "tuned.json"
    save(path, row(1))

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(KeyboardInterrupt):
        save(path, row(2))
    monkeypatch.undo()
    assert list(read(path)) == list(row(1))
    assert not list(tmp_path.glob("*.part"))


def test_a_folder_that_cannot_be_written_is_warned_of(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.warns(RuntimeWarning, match="cannot be stored"):
        assert len(save(tmp_path / "file" / "tuned.json", row(1))) == 1


def write_many(path: Path, first: int) -> None:
    for channels in range(first, first + 8):
        save(path, row(channels))


def test_processes_that_write_together_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "tuned.json"
    require_fork()
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=write_many, args=(path, 8 * n)) for n in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(120)
        assert writer.exitcode == 0
    assert {signature.c_in for signature, _, _ in read(path)} == set(range(24))


def test_shipped_tables_are_whole_and_named_by_their_devices() -> None:
    assert shipped_path("NVIDIA H200").name == "nvidia_h200.json"
    files = list(SHIPPED.glob("*.json"))
    assert shipped_path("NVIDIA H200") in files
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for path in files:
            for signature, _, choices in read(path):
                assert shipped_path(signature.device.rsplit(" sm_", 1)[0]) == path
                assert choices


def test_lookups_read_the_users_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    forget()
    usual, product = Reference(name="usual"), Product("forward", torch.float32, 4, 8)
    wanted = CPU, product, 27
    assert user_path() == tmp_path / "pcnn" / "tuned.json"
    name, triton = place(CPU)
    assert (name[:4], triton) == ("cpu ", "none")
    assert tuned(usual, *wanted, 1000) is usual
    signature = signature_of(CPU, product, 27)
    choices = Choice(Reference(), 0.5), Choice(Blocked(), 0.6)
    save(user_path(), TuningTable([(signature, Bucket.of(1000, 6), choices)]))
    assert tuned(usual, *wanted, 1000) is usual  # answered from memory
    forget()
    assert tuned(usual, *wanted, 1000) == Reference()
    assert tuned(usual, *wanted, 1900) == Reference()
    assert tuned(Blocked(name="other"), *wanted, 1000) == Blocked()
    assert tuned(usual, CPU, product._replace(groups=2), 27, 1000) is usual
    assert tuned(usual, *wanted, 0) is usual
    monkeypatch.undo()
    forget()


def test_a_file_has_one_row_a_line(tmp_path: Path) -> None:
    path = tmp_path / "tuned.json"
    save(path, row(1))
    save(path, row(2))
    assert list(read(path)) == [*row(1), *row(2)]
    assert [one.name for one in tmp_path.iterdir() if one.suffix != ".lock"] == ["tuned.json"]
    lines = path.read_text().splitlines()
    assert [json.loads(line.rstrip(","))["c_in"] for line in lines[1:-1]] == [1, 2]
