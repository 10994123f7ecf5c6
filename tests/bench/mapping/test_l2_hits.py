from __future__ import annotations

from pathlib import Path

import pytest
import torch

from pcnn.bench.mapping import l2_hits
from pcnn.bench.mapping.l2_hits import (
    KernelHits,
    l2_hit_percent,
    mean_hits,
    ncu_command,
    read_ncu_csv,
)
from pcnn.bench.mapping.measured import Case
from pcnn.bench.mapping.one_build import one_build
from pcnn.bench.rows import Row
from pcnn.bench.scenes import load_scene
from pcnn.geometry import Kernel
from pcnn.maps import SortedSearch

HEADER = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size",'
    '"Grid Size","Device","CC","Section Name","Metric Name","Metric Unit","Metric Value"'
)


def line(number: int, kernel: str, metric: str, unit: str, value: str) -> str:
    fields = [number, 7, "python3", "127.0.0.1", kernel, 1, 7, "(256, 1, 1)", "(9, 1, 1)", 0]
    words = [*map(str, fields), "9.0", "Command line profiler metrics", metric, unit, value]
    return ",".join(f'"{word}"' for word in words)


TEXT = "\n".join(
    [
        "==PROF== Connected to process 7 (/usr/bin/python3.12)",
        '==PROF== Profiling "search" - 0: 0%....50%....100% - 1 pass',
        HEADER,
        line(0, "insert", l2_hits.HIT_RATE, "%", "12.5"),
        line(0, "insert", l2_hits.SECTORS, "sector", "1,000"),
        line(1, "search(SearchArguments)", l2_hits.HIT_RATE, "%", "90"),
        line(1, "search(SearchArguments)", l2_hits.SECTORS, "sector", "3,000"),
        line(2, "search(SearchArguments)", l2_hits.HIT_RATE, "%", "50"),
        line(2, "search(SearchArguments)", l2_hits.SECTORS, "sector", "1,000.00"),
        "==PROF== Disconnected from process 7",
    ]
)


def test_the_csv_of_ncu_is_read() -> None:
    assert read_ncu_csv(TEXT) == [
        KernelHits("insert", 12.5, 1000.0),
        KernelHits("search(SearchArguments)", 90.0, 3000.0),
        KernelHits("search(SearchArguments)", 50.0, 1000.0),
    ]


def test_the_hits_of_searches_count_by_their_sectors() -> None:
    assert mean_hits(read_ncu_csv(TEXT)) == 80.0
    with pytest.raises(RuntimeError, match="no search, but insert"):
        mean_hits([KernelHits("insert", 10.0, 1000.0)])
    with pytest.raises(RuntimeError, match="no kernel at all"):
        mean_hits([])


def test_what_is_no_table_is_named() -> None:
    with pytest.raises(RuntimeError, match="ERR_NVGPUCTRPERM"):
        read_ncu_csv("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission")
    with pytest.raises(RuntimeError, match="lts__t_sectors"):
        read_ncu_csv("\n".join([HEADER, line(0, "search", l2_hits.HIT_RATE, "%", "1")]))


def test_clocks_stay_as_they_are() -> None:
    command = ncu_command(Path("log.csv"), ["python", "program.py"])
    assert command[0] == "ncu"
    assert "--clock-control=none" in command
    assert command[-2:] == ["python", "program.py"]


def case() -> Case:
    scene = load_scene("random_1k")
    return Case(scene.name, scene.grid, Kernel.of(3))


def test_a_row_gets_the_hits_of_its_search(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def run(command: list[str], **_: object) -> object:
        asked.append(command)
        log = next(word for word in command if word.startswith("--log-file="))
        Path(log.partition("=")[2]).write_text(TEXT)
        program = command[command.index("-m") + 2 :]
        one_build(program)  # what ncu would profile runs as it is given
        return type("Done", (), {"returncode": 0, "stdout": "", "stderr": ""})()

    monkeypatch.setattr(l2_hits.subprocess, "run", run)
    row = Row("map", "random_1k", "sorted_search", gpu_busy_ms=1.0, checked=True)
    found = l2_hit_percent(row, case(), SortedSearch())
    assert (found.l2_hit_percent, found.gpu_busy_ms) == (80.0, 1.0)
    assert asked[0][-4:] == ["sorted_search", "3", "1", "cpu"]


def test_an_absent_ncu_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(RuntimeError, match="ncu does not run"):
        l2_hit_percent(Row("map", "a", "b"), case(), SortedSearch())


@pytest.mark.gpu
@pytest.mark.long
def test_ncu_measures_a_search() -> None:
    scene = load_scene("surface_20k")
    on_gpu = Case(scene.name, scene.grid.to(torch.device("cuda")), Kernel.of(3))
    found = l2_hit_percent(Row("map", "a", "b"), on_gpu, SortedSearch())
    assert 0.0 < found.l2_hit_percent <= 100.0
