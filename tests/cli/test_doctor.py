from __future__ import annotations

from typing import Any

import pytest
import torch

from pcnn.cli import doctor as command
from pcnn.cli.doctor import Finding, diagnose, driver_cuda
from tests.cli.invoking import invoke


def found() -> dict[str, Finding]:
    return {finding.subject: finding for finding in diagnose()}


def test_a_working_machine_has_nothing_broken() -> None:
    report = found()
    assert not [finding for finding in report.values() if finding.state == "broken"]
    assert torch.__version__ in report["torch"].text
    assert {"python", "pcnn", "driver", "triton", "cuda bindings"} <= set(report)


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
    finding = found()[subject]
    assert finding.state == "broken"
    monkeypatch.setattr(command, "diagnose", lambda: iter([finding]))
    invoke("doctor", code=1)


def test_a_kernel_of_the_package_is_compiled() -> None:
    report = found()
    assert "NVRTC" in report["cuda bindings"].text
    assert report["cuda kernels"].state == "ok"
    assert "csrc/probe.cu compiles for sm_" in report["cuda kernels"].text


@pytest.mark.gpu
def test_a_gpu_is_described() -> None:
    assert driver_cuda() is not None
    report = found()
    assert torch.cuda.get_device_name(0) in report["device cuda:0"].text
    assert report["cuda bindings"].state != "broken"
    assert "runs on the device" in report["cuda kernels"].text
