"""`pcnn doctor`: what this machine offers, what is missing, and the command that adds it."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sys
import sysconfig
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Literal, NamedTuple

import typer

from pcnn.cores import available_cores
from pcnn.kernels.compiler import driver_cuda, extra_for, require
from pcnn.messages import counted, install

State = Literal["ok", "absent", "broken"]
STYLES: dict[State, str] = {"ok": "green", "absent": "yellow", "broken": "bold red"}

PROBE = "probe.cu"


class Finding(NamedTuple):
    """One line of the report: broken must be mended, absent is optional or not needed here."""

    subject: str
    state: State
    text: str


def doctor() -> None:
    """Report Python, torch, device, driver, CUDA bindings and compilers."""
    from rich.table import Table
    from rich.text import Text

    from pcnn.console import Console, plain

    table = Table(show_header=False, box=None, pad_edge=False)
    for _ in range(3):
        table.add_column(overflow="fold")
    findings = list(diagnose())
    for subject, state, text in findings:
        table.add_row(subject, Text(state, STYLES[state]), plain(text))
    Console().print(table)
    if any(finding.state == "broken" for finding in findings):
        raise typer.Exit(1)


def diagnose() -> Iterator[Finding]:
    """Look at one thing after the other."""
    yield from _programs()
    yield from _device()
    yield _triton()
    yield from _cuda_bindings()


def _programs() -> Iterator[Finding]:
    import torch

    import pcnn

    text = f"Python {platform.python_version()} at {sys.executable}"
    yield Finding("python", "ok", text)
    yield Finding("pcnn", "ok", f"{pcnn.__version__} at {Path(pcnn.__file__).parent}")
    text = f"{platform.platform()}, {counted(available_cores(), 'core')}"
    if Path("/dev/shm").is_dir():  # loaders pass batches through it
        text += f", {shutil.disk_usage('/dev/shm').free / 2**30:.1f} GiB of shared memory free"
    yield Finding("machine", "ok", text)
    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU build"
    waits = os.environ.get("OMP_WAIT_POLICY") or f"{os.environ.get('GOMP_SPINCOUNT')} spins"
    threads = counted(torch.get_num_threads(), "thread")
    text = f"{torch.__version__} ({build}), {threads} (they wait: {waits})"
    yield Finding("torch", "ok", text)


def _device() -> Iterator[Finding]:
    import torch

    driver, built = driver_cuda(), torch.version.cuda
    if driver is None:
        yield Finding("driver", "absent", "no NVIDIA driver: everything runs on the CPU")
        yield Finding("device", "ok", "cpu")
        return
    yield Finding("driver", "ok", f"supports CUDA {driver[0]}.{driver[1]}")
    for index in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        found = torch.cuda.get_device_properties(index)
        memory = found.total_memory / 2**30
        text = f"{found.name}, sm_{found.major}{found.minor}, {memory:.0f} GiB"
        yield Finding(f"device cuda:{index}", "ok", text)
    if torch.cuda.is_available():
        return
    build = f"for CUDA {built}" if built else "for the CPU alone"
    text = f"torch is built {build}: install it for CUDA {driver[0]}, or update the driver"
    yield Finding("device", "broken", text)


def _triton() -> Finding:
    import torch

    gpu = torch.cuda.is_available()
    if importlib.util.find_spec("triton") is None:
        if gpu:
            return Finding("triton", "broken", "missing: pip install triton")
        return Finding("triton", "absent", "not needed without an NVIDIA device")
    text = f"triton {version('triton')}"
    if not gpu:
        return Finding("triton", "ok", text)
    # Triton builds its launchers with the C compiler at first use
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
    header = Path(sysconfig.get_path("include")) / "Python.h"
    if compiler and header.is_file():
        return Finding("triton", "ok", f"{text}, launchers built by {compiler}")
    lacking = f"no {header}" if compiler else "no C compiler"
    return Finding("triton", "broken", f"{text}, but {lacking}: apt-get install gcc python3-dev")


def _cuda_bindings() -> Iterator[Finding]:
    import torch

    extra = extra_for(torch.version.cuda, driver_cuda())
    if importlib.util.find_spec("cuda") is None or importlib.util.find_spec("cuda.core") is None:
        cure = install(extra) if extra else "not needed without an NVIDIA device"
        yield Finding("cuda bindings", "absent", cure)
        return
    try:
        compiler = require()
    except ImportError as error:
        yield Finding("cuda bindings", "broken", str(error).replace("\n", " "))
        return
    core, bindings = version("cuda-core"), version("cuda-bindings")
    found = f"cuda-core {core}, cuda-bindings {bindings}, NVRTC {compiler}"
    if extra not in (None, f"cu{bindings.split('.')[0]}"):
        text = f"{found}, but this torch needs: {install(extra)}"
        yield Finding("cuda bindings", "broken", text)
        return
    yield Finding("cuda bindings", "ok", found)
    yield _cuda_kernels()


def _cuda_kernels() -> Finding:
    """Compile the smallest source of csrc, and run it where there is a GPU."""
    import torch

    from pcnn.kernels.compiler import architecture, compile_source
    from pcnn.kernels.cuda import module
    from pcnn.kernels.sources import FOLDER

    try:
        arch = "sm_90a"
        if torch.cuda.is_available():
            arch = architecture(torch.cuda.get_device_capability())
        text = f"{FOLDER / PROBE} compiles for {arch}"
        size = len(compile_source(PROBE, arch, {})[0])
        if torch.cuda.is_available():
            device = torch.device("cuda")
            out = torch.zeros(1000, dtype=torch.int32, device=device)
            kernels = module(PROBE, device)
            blocks = -(-len(out) // 256)
            kernels.launch("fill", blocks, out=out, n=len(out), value=7)
            if not bool((out == 7).all()):
                raise RuntimeError(f"{PROBE} ran on {device}, but its output is wrong")
            text = f"{text}, and runs on the device"
    except Exception as error:  # whatever a broken CUDA installation raises is the finding
        return Finding("cuda kernels", "broken", str(error))
    return Finding("cuda kernels", "ok", f"{text} ({size} bytes)")
