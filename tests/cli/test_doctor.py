from __future__ import annotations

from typing import Any

import pytest
import torch

from pcnn.cli import doctor as command
from pcnn.cli.doctor import diagnose, driver_cuda
from tests.cli.invoking import invoke


def found() -> dict[str, tuple[str, str]]:
    return {subject: (state, text) for subject, state, text in diagnose()}


def test_a_working_machine_has_nothing_broken() -> None:
    report = found()
    assert "broken" not in {state for state, _ in report.values()}
    assert torch.__version__ in report["torch"][1]
    assert {"python", "device", "triton"} <= set(report)
    assert "NVRTC" in report["cuda bindings"][1]
    assert report["cuda kernels"][0] == "ok"
    assert "csrc/probe.cu compiles for sm_" in report["cuda kernels"][1]


@pytest.mark.parametrize(
    ("subject", "change"),
    [
        ("device", (command, "driver_cuda", lambda: (13, 0))),
        ("cuda kernels", (command, "PROBE", "absent.cu")),
    ],
)
def test_what_is_broken_is_named_and_sets_the_exit_code(
    subject: str, change: tuple[Any, str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(*change)
    state, text = found()[subject]
    assert state == "broken"
    assert text.split()[0] in invoke("doctor", code=1)


@pytest.mark.gpu
def test_a_gpu_is_described() -> None:
    assert driver_cuda() is not None
    report = found()
    assert torch.cuda.get_device_name(0) in report["device"][1]
    assert report["cuda bindings"][0] != "broken"
    assert "runs on the device" in report["cuda kernels"][1]
