"""`pcnn doctor`: what this machine offers, what is missing, and the command that adds it."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import platform
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

import typer

State = Literal["ok", "absent", "broken"]
STYLES: dict[State, str] = {"ok": "green", "absent": "yellow", "broken": "bold red"}

#: Packages that some commands use, and how each is installed.
OPTIONAL = {
    "open3d": "pip install 'pcnn[registration]'",
    "tensorboard": "pip install 'pcnn[tensorboard]'",
    "wandb": "pip install wandb",
    "embreex": "pip install embreex",
}
#: The smallest kernel that proves the run-time compiler works.
PROBE = 'extern "C" __global__ void probe(float* x) { x[threadIdx.x] = 1.0f; }'


@dataclass(frozen=True)
class Finding:
    """One line of the report.

    Args:
        subject: what was looked at.
        state: ``ok``, ``absent`` (optional, or of no use here) or ``broken`` (must be mended).
        text: what was found, and what to do about it.
    """

    subject: str
    state: State
    text: str


def doctor() -> None:
    """Report Python, torch, device, driver, CUDA bindings, compilers, packages and caches."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(show_header=False, box=None, pad_edge=False)
    for _ in range(3):
        table.add_column(overflow="fold")
    findings: list[Finding] = []
    for finding in diagnose():
        findings.append(finding)
        style = STYLES[finding.state]
        table.add_row(finding.subject, f"[{style}]{finding.state}[/{style}]", escape(finding.text))
    Console().print(table)
    if any(finding.state == "broken" for finding in findings):
        raise typer.Exit(1)


def diagnose() -> Iterator[Finding]:
    """Look at one thing after the other."""
    yield _python()
    yield _package()
    yield _torch()
    yield from _device()
    yield _triton()
    yield _cuda_bindings()
    for name, command in OPTIONAL.items():
        yield _optional(name, command)
    yield from _caches()


def _python() -> Finding:
    text = f"Python {platform.python_version()} at {sys.executable}"
    if (3, 10) <= sys.version_info[:2] <= (3, 13):
        return Finding("python", "ok", text)
    return Finding("python", "broken", f"{text}; pcnn needs 3.10-3.13")


def _package() -> Finding:
    import pcnn

    return Finding("pcnn", "ok", f"{pcnn.__version__} at {Path(pcnn.__file__).parent}")


def _torch() -> Finding:
    import torch

    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU build"
    text = f"{torch.__version__} ({build}), {torch.get_num_threads()} threads"
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 6):
        return Finding("torch", "broken", f"{text}; pcnn needs 2.6 or newer")
    return Finding("torch", "ok", text)


def driver_cuda() -> tuple[int, int] | None:
    """Newest CUDA version that the NVIDIA driver serves, ``None`` without a driver."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    number = ctypes.c_int()
    if library.cuDriverGetVersion(ctypes.byref(number)) != 0:
        return None
    return number.value // 1000, number.value % 1000 // 10


def _device() -> Iterator[Finding]:
    import torch

    driver = driver_cuda()
    if driver is None:
        yield Finding("driver", "absent", "no NVIDIA driver: everything runs on the CPU")
    else:
        yield Finding("driver", "ok", f"serves CUDA {driver[0]}.{driver[1]}")
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(index)
            memory = properties.total_memory / 2**30
            yield Finding(
                f"device cuda:{index}",
                "ok",
                f"{properties.name}, sm_{properties.major}{properties.minor}, {memory:.0f} GiB",
            )
    elif driver is None:
        yield Finding("device", "ok", "cpu")
    elif torch.version.cuda is None:
        yield Finding("device", "broken", "torch is a CPU build: install PyTorch's CUDA build")
    else:
        yield Finding(
            "device",
            "broken",
            f"torch is built for CUDA {torch.version.cuda}, the driver serves "
            f"{driver[0]}.{driver[1]}: update the driver, or install torch for CUDA {driver[0]}",
        )


def _triton() -> Finding:
    import torch

    try:
        text = f"triton {version('triton')}"
    except PackageNotFoundError:
        if torch.cuda.is_available():
            return Finding(
                "triton", "broken", "comes with PyTorch's CUDA build; pip install triton"
            )
        return Finding("triton", "absent", "of no use without an NVIDIA device")
    if not torch.cuda.is_available():
        return Finding("triton", "ok", text)
    # Triton builds its launchers with the C compiler at first use
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
    header = Path(sysconfig.get_path("include")) / "Python.h"
    if compiler and header.is_file():
        return Finding("triton", "ok", f"{text}, launchers built by {compiler}")
    lacking = "no C compiler (gcc)" if not compiler else f"no {header}"
    return Finding(
        "triton", "broken", f"{text}, but {lacking}: apt-get install gcc python3-dev, or the like"
    )


def extra_for(torch_cuda: str | None, driver: tuple[int, int] | None) -> str | None:
    """Extra with the CUDA bindings that fit: torch's CUDA major, else the driver's.

    Returns:
        ``cu12``, ``cu13``, or ``None`` where CUDA is neither in torch nor in a driver.
    """
    if torch_cuda:
        return f"cu{torch_cuda.split('.')[0]}"
    return f"cu{min(driver[0], 13)}" if driver else None


def _cuda_bindings() -> Finding:
    import torch

    extra = extra_for(torch.version.cuda, driver_cuda())
    if importlib.util.find_spec("cuda") is None or importlib.util.find_spec("cuda.core") is None:
        if extra is None:
            return Finding("cuda bindings", "absent", "of no use without an NVIDIA device")
        return Finding("cuda bindings", "absent", f"pip install 'pcnn[{extra}]'")
    found = f"cuda-core {version('cuda-core')}, cuda-bindings {version('cuda-bindings')}"
    bindings = f"cu{version('cuda-bindings').split('.')[0]}"
    if extra is not None and bindings != extra:
        return Finding(
            "cuda bindings", "broken", f"{found}, but torch fits pip install 'pcnn[{extra}]'"
        )
    arch = "sm_90a"
    if torch.cuda.is_available():
        major, minor = torch.cuda.get_device_capability()
        arch = f"sm_{major}{minor}"
    try:
        size = compile_probe(arch)
    except Exception as error:  # whatever a broken CUDA installation raises is the finding
        return Finding("cuda bindings", "broken", f"{found}; no kernel compiles: {error}")
    return Finding("cuda bindings", "ok", f"{found}; a kernel for {arch} compiles ({size} bytes)")


def compile_probe(arch: str) -> int:
    """Compile the smallest kernel to machine code; needs no GPU.

    Returns:
        Size of the cubin [bytes].
    """
    from cuda.core import Program, ProgramOptions

    program = Program(PROBE, code_type="c++", options=ProgramOptions(arch=arch))
    return len(program.compile("cubin").code)


def _optional(name: str, command: str) -> Finding:
    for package in (name, f"{name}-cpu"):
        try:
            return Finding(name, "ok", version(package))
        except PackageNotFoundError:
            continue
    return Finding(name, "absent", command)


def _caches() -> Iterator[Finding]:
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folders: dict[str, Path] = {"user cache": home}
    if importlib.util.find_spec("triton") is not None:
        triton = os.environ.get("TRITON_CACHE_DIR") or Path.home() / ".triton" / "cache"
        folders["triton cache"] = Path(triton)
    for name, folder in folders.items():
        yield _writable(name, folder)


def _writable(name: str, folder: Path) -> Finding:
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    try:
        with tempfile.TemporaryFile(dir=existing):
            free = shutil.disk_usage(existing).free / 2**30
    except OSError as error:
        return Finding(name, "broken", f"{folder} cannot be written: {error}")
    return Finding(name, "ok", f"{folder}, {free:.0f} GiB free")
