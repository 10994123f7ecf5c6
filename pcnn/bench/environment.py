"""The header of a result file, read off the running machine; clocks are read, never set."""

from __future__ import annotations

import datetime
import importlib.metadata
import platform
import subprocess
from pathlib import Path

import torch

from pcnn.bench.rows import Header
from pcnn.extras import DISTRIBUTION

#: Readings of nvidia-smi: clocks [MHz], temperature of the chip [degrees Celsius], power of the
#: board [W]. ``None`` is what the GPU does not tell.
_QUERY = {
    "sm_mhz": "clocks.sm",
    "memory_mhz": "clocks.mem",
    "temperature_c": "temperature.gpu",
    "power_w": "power.draw",
}
GpuState = dict[str, float | None]


def read_state(device: torch.device) -> GpuState | None:
    """State of a device now, ``None`` for a CPU or where nvidia-smi does not answer."""
    if device.type != "cuda":
        return None
    # by UUID: nvidia-smi numbers the devices of the machine, torch those it may see
    uuid = str(torch.cuda.get_device_properties(device).uuid)
    uuid = uuid if uuid.startswith("GPU-") else f"GPU-{uuid}"
    return parse_state(_nvidia_smi(",".join(_QUERY.values()), f"--id={uuid}"))


def _nvidia_smi(query: str, *words: str) -> str:
    """First line of its answer; empty where it does not answer."""
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits", *words]
    return (_answer(command).splitlines() or [""])[0]


def _answer(command: list[str], folder: Path | None = None) -> str:
    """Output of a program; empty where it fails or is not installed."""
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def parse_state(line: str) -> GpuState | None:
    """Read the answer to `_QUERY`; ``None`` if it is no such line."""
    values = [_number(field.strip()) for field in line.split(",")]
    return dict(zip(_QUERY, values, strict=True)) if len(values) == len(_QUERY) else None


def _number(field: str) -> float | None:
    try:
        return float(field)
    except ValueError:
        return None  # "[N/A]", "[Unknown Error]"


def describe(
    device: torch.device,
    *,
    before: GpuState | None = None,
    after: GpuState | None = None,
    stand_ins: dict[str, str] | None = None,
) -> Header:
    """Header for measurements on a device now; arguments are its fields."""
    on_gpu = device.type == "cuda"
    return Header(
        device=torch.cuda.get_device_name(device) if on_gpu else processor(),
        driver=_nvidia_smi("driver_version") or None if on_gpu else None,
        torch=torch.__version__,
        triton=installed("triton"),
        cuda=torch.version.cuda if on_gpu else None,
        revision=revision(),
        date=datetime.date.today().isoformat(),
        before=before,
        after=after,
        stand_ins=stand_ins or None,
    )


def short_name(device: torch.device) -> str:
    """Name of the device in file names: ``cpu``, or the GPU's model such as ``h200``."""
    if device.type != "cuda":
        return "cpu"
    words = torch.cuda.get_device_name(device).lower().split()
    return "-".join(word for word in words if word not in ("nvidia", "geforce", "tesla"))


def processor() -> str:
    """Model name of the CPU and the number of threads torch uses."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    name = names[0] if names else platform.machine()
    return f"cpu ({name}, {torch.get_num_threads()} threads)"


def installed(package: str) -> str | None:
    """Version of an installed package, ``None`` when it is absent."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def revision() -> str:
    """Commit of the checkout this package runs from, else the package's version."""
    folder = Path(__file__).resolve().parents[2]
    found = ""
    if (folder / ".git").exists():
        command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
        found = _answer(command, folder)
    return found or f"pcnn {installed(DISTRIBUTION) or 'unknown'}"
