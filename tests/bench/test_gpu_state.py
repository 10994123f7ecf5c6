from __future__ import annotations

import subprocess
from types import SimpleNamespace

import pytest
import torch

from pcnn.bench import environment
from pcnn.bench.environment import GpuState, parse_state, read_state


def test_the_answer_of_nvidia_smi_is_read() -> None:
    assert parse_state("1980, 3201, 41, 118.52\n") == GpuState(1980.0, 3201.0, 41.0, 118.52)


def test_what_a_gpu_does_not_tell_is_absent() -> None:
    assert parse_state("345, 3201, [N/A], [Unknown Error]\n") == GpuState(345.0, 3201.0, None, None)


@pytest.mark.parametrize("text", ["", "\n", "No devices were found\n", "1, 2\n"])
def test_other_answers_are_no_state(text: str) -> None:
    assert parse_state(text) is None


def test_a_cpu_has_no_state() -> None:
    assert read_state(torch.device("cpu")) is None


def test_the_device_is_asked_for_by_uuid(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def run(command: list[str], **_: object) -> SimpleNamespace:
        asked.extend(command)
        return SimpleNamespace(stdout="1, 2, 3, 4\n")

    properties = SimpleNamespace(uuid="8b1f")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    monkeypatch.setattr(environment.subprocess, "run", run)
    assert read_state(torch.device("cuda:1")) == GpuState(1.0, 2.0, 3.0, 4.0)
    assert "--id=GPU-8b1f" in asked
    assert not any(word.startswith(("-lgc", "-pl", "-pm", "-r")) for word in asked)

    def absent(*_: object, **__: object) -> None:
        raise subprocess.CalledProcessError(9, "nvidia-smi")

    monkeypatch.setattr(environment.subprocess, "run", absent)
    assert read_state(torch.device("cuda")) is None


@pytest.mark.gpu
def test_a_gpu_tells_its_clocks() -> None:
    state = read_state(torch.device("cuda"))
    assert state is not None
    assert state.sm_mhz
