"""`pcnn doctor`: what this machine offers, what is missing, and the command that adds it."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sys
import sysconfig
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

import typer

from pcnn.cores import available_cores
from pcnn.kernels.compiler import driver_cuda, extra_for, require
from pcnn.messages import counted, install

PROBE = "probe.cu"


class Absent(Exception):
    """What is not here, and is not needed or optional."""


def doctor() -> None:
    """Report Python, torch, device, driver, CUDA bindings and compilers."""
    from rich.table import Table
    from rich.text import Text

    from pcnn.console import Console, plain

    table = Table(show_header=False, box=None, pad_edge=False)
    for _ in range(3):
        table.add_column(overflow="fold")
    styles = {"ok": "green", "absent": "yellow", "broken": "bold red"}
    findings = list(diagnose())
    for subject, state, text in findings:
        table.add_row(subject, Text(state, styles[state]), plain(text))
    Console().print(table)
    if any(state == "broken" for _, state, _ in findings):
        raise typer.Exit(1)


def diagnose() -> Iterator[tuple[str, str, str]]:
    """Subject, state and text of one thing after the other; what is broken must be mended."""
    parts: dict[str, Callable[[], str]] = {
        "python": _python,
        "torch": _torch,
        "device": _device,
        "triton": _triton,
        "cuda bindings": _cuda_bindings,
        "cuda kernels": _cuda_kernels,
    }
    for subject, look in parts.items():
        try:
            yield subject, "ok", look()
        except Absent as reason:
            yield subject, "absent", str(reason)
        except Exception as error:  # whatever a broken installation raises is the finding
            yield subject, "broken", str(error).replace("\n", " ")


def _python() -> str:
    import pcnn

    machine = f"{platform.platform()}, {counted(available_cores(), 'core')}"
    home = Path(pcnn.__file__).parent
    return f"{platform.python_version()} at {sys.executable}, {machine}; pcnn at {home}"


def _torch() -> str:
    import torch

    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU build"
    return f"{torch.__version__} ({build}), {counted(torch.get_num_threads(), 'thread')}"


def _device() -> str:
    import torch

    driver, built = driver_cuda(), torch.version.cuda
    if driver is None:
        raise Absent("no NVIDIA driver: everything runs on the CPU")
    if not torch.cuda.is_available():
        build = f"for CUDA {built}" if built else "for the CPU alone"
        cure = f"install it for CUDA {driver[0]}, or update the driver"
        raise RuntimeError(f"torch is built {build}: {cure}")
    devices = map(torch.cuda.get_device_properties, range(torch.cuda.device_count()))
    found = [f"{one.name}, {one.total_memory / 2**30:.0f} GiB" for one in devices]
    return f"{'; '.join(found)} (driver of CUDA {driver[0]}.{driver[1]})"


def _triton() -> str:
    import torch

    if not torch.cuda.is_available():
        raise Absent("not needed without an NVIDIA device")
    if importlib.util.find_spec("triton") is None:
        raise RuntimeError("missing: pip install triton")
    # Triton builds its launchers with the C compiler at first use
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
    header = Path(sysconfig.get_path("include")) / "Python.h"
    if compiler and header.is_file():
        return f"triton {version('triton')}, launchers built by {compiler}"
    lacking = f"no {header}" if compiler else "no C compiler"
    raise RuntimeError(f"{lacking}: apt-get install gcc python3-dev")


def _cuda_bindings() -> str:
    import torch

    extra = extra_for(torch.version.cuda, driver_cuda())
    if importlib.util.find_spec("cuda") is None:
        raise Absent(install(extra) if extra else "not needed without an NVIDIA device")
    compiler, bindings = require(), version("cuda-bindings")
    if extra not in (None, f"cu{bindings.split('.')[0]}"):
        raise RuntimeError(f"cuda-bindings {bindings}, but this torch needs: {install(extra)}")
    return f"cuda-bindings {bindings}, NVRTC {compiler}"


def _cuda_kernels() -> str:
    """Compile the smallest source of csrc, and run it where there is a GPU."""
    import torch

    from pcnn.kernels.compiler import FOLDER, architecture, compile_source
    from pcnn.kernels.cuda import module

    if importlib.util.find_spec("cuda") is None:
        raise Absent("nothing compiles them")
    gpu = torch.cuda.is_available()
    arch = architecture(torch.cuda.get_device_capability()) if gpu else "sm_90a"
    size = len(compile_source(PROBE, arch, {})[0])
    text = f"{FOLDER / PROBE} compiles for {arch} ({size} bytes)"
    if not gpu:
        return text
    out = torch.zeros(1000, dtype=torch.int32, device="cuda")
    module(PROBE, out.device).launch("fill", -(-len(out) // 256), out=out, n=len(out), value=7)
    if not bool((out == 7).all()):
        raise RuntimeError(f"{PROBE} ran on {out.device}, but its output is wrong")
    return f"{text}, and runs on the device"
