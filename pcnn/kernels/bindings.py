"""The optional packages that compile and launch CUDA kernels, and what to install without them."""

from __future__ import annotations

import ctypes
import importlib

from pcnn.messages import install


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


def extra_for(torch_cuda: str | None, driver: tuple[int, int] | None) -> str | None:
    """Extra with the CUDA bindings that fit: torch's CUDA major, else the driver's."""
    if torch_cuda:
        return f"cu{torch_cuda.split('.')[0]}"
    return f"cu{min(driver[0], 13)}" if driver else None


def require() -> str:
    """Make sure that kernels can be compiled."""
    import torch

    extra = extra_for(torch.version.cuda, driver_cuda()) or "cu13"
    try:
        importlib.import_module("cuda.core")
        importlib.import_module("cuda.bindings.driver")
        nvrtc = importlib.import_module("cuda.bindings.nvrtc")
        # the bindings look for the library itself at the first call
        error, major, minor = nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError) as failure:
        reason = str(failure).strip().split("\n")[0][:200]
        raise ImportError(
            f"CUDA kernels are compiled at first use, and a package for that is missing: {reason}\n"
            f"{install(extra)} brings it; pcnn doctor checks it."
        ) from failure
    if error:
        raise ImportError(f"NVRTC does not answer ({error.name}): {install(extra)}")
    return f"{major}.{minor}"
