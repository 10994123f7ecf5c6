"""Tests that kill a forked child of themselves."""

import pytest
import torch


def require_fork() -> None:
    """Skip where a child could not go on: CUDA does not survive a fork."""
    if torch.cuda.is_available():
        pytest.skip("forks, and CUDA does not survive a fork; the CPU suite covers it")
