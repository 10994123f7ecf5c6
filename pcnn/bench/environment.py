"""The header of a result file, read off the running machine; clocks are read, never set."""

from __future__ import annotations

import datetime
import importlib.metadata
import platform
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from pcnn.bench.rows import Header

_QUERY = ("clocks.sm", "clocks.mem", "temperature.gpu", "power.draw")


@dataclass(frozen=True)
class GpuState:
    """One reading of nvidia-smi; ``None`` is what the GPU does not tell.

    Args:
        sm_mhz: clock of the multiprocessors [MHz].
        memory_mhz: clock of the memory [MHz].
        temperature_c: of the chip [degrees Celsius].
        power_w: drawn by the board [W].
    """

    sm_mhz: float | None
    memory_mhz: float | None
    temperature_c: float | None
    power_w: float | None


def read_state(device: torch.device) -> GpuState | None:
    """State of a device now, ``None`` for a CPU or where nvidia-smi does not answer."""
    if device.type != "cuda":
        return None
    # by UUID: nvidia-smi numbers the devices of the machine, torch those it may see
    uuid = str(torch.cuda.get_device_properties(device).uuid)
    uuid = uuid if uuid.startswith("GPU-") else f"GPU-{uuid}"
    command = ["nvidia-smi", f"--query-gpu={','.join(_QUERY)}", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(
            [*command, f"--id={uuid}"], capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return parse_state(answer.stdout)


def parse_state(text: str) -> GpuState | None:
    """Read the first line of the answer to `_QUERY`; ``None`` if it is no such line."""
    lines = text.strip().splitlines()
    fields = [field.strip() for field in lines[0].split(",")] if lines else []
    return GpuState(*map(_number, fields)) if len(fields) == len(_QUERY) else None


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
    """Header for measurements on a device now.

    Args:
        device: where the rows were measured.
        before: state of the GPU before the rows.
        after: and after them.
        stand_ins: by figure, what was measured in place of the paper's data.
    """
    on_gpu = device.type == "cuda"
    return Header(
        device=torch.cuda.get_device_name(device) if on_gpu else processor(),
        driver=driver_version() if on_gpu else None,
        torch=torch.__version__,
        triton=installed("triton"),
        cuda=torch.version.cuda if on_gpu else None,
        revision=revision(),
        date=datetime.date.today().isoformat(),
        before=None if before is None else asdict(before),
        after=None if after is None else asdict(after),
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


def driver_version() -> str | None:
    """Version of the NVIDIA driver, ``None`` where nvidia-smi does not answer."""
    try:
        answer = subprocess.run(
            ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip().splitlines()[0] if answer.stdout.strip() else None


def installed(package: str) -> str | None:
    """Version of an installed package, ``None`` when it is absent."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def revision() -> str:
    """Commit of the checkout this package runs from, else the package's version."""
    folder = Path(__file__).resolve().parents[2]
    if (folder / ".git").exists():
        try:
            answer = subprocess.run(
                ["git", "describe", "--always", "--dirty", "--abbrev=12"],
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=20,
                check=True,
            )
            return answer.stdout.strip()
        except (OSError, subprocess.SubprocessError):
            pass  # a checkout without git installed: the version serves
    return f"pcnn {installed('pcnn') or 'unknown'}"
