"""Clocks, temperature and power of a GPU, as it is found; never set."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass

import torch

QUERY = ("clocks.sm", "clocks.mem", "temperature.gpu", "power.draw")


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
    command = ["nvidia-smi", f"--query-gpu={','.join(QUERY)}", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(
            [*command, f"--id={uuid}"], capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return parse_state(answer.stdout)


def parse_state(text: str) -> GpuState | None:
    """Read the first line of the answer to `QUERY`; ``None`` if it is no such line."""
    lines = text.strip().splitlines()
    fields = [field.strip() for field in lines[0].split(",")] if lines else []
    return GpuState(*map(_number, fields)) if len(fields) == len(QUERY) else None


def _number(field: str) -> float | None:
    try:
        return float(field)
    except ValueError:
        return None  # "[N/A]", "[Unknown Error]"
