"""Where tests of maps run: on a GPU, or on CPU tensors through the emulator of kernels."""

import pytest
import torch

from tests.kernels.emulator import EmulatedModule


@pytest.fixture(params=["emulated", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> torch.device:
    """Where kernels run; small clouds belong to the emulator, `size` says which."""
    if request.param == "cuda":
        return torch.device("cuda", torch.cuda.current_device())
    request.getfixturevalue("emulated")
    return torch.device("cpu")


@pytest.fixture
def reversed_blocks(emulated: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last block of every emulated launch runs first, to expose races between blocks."""
    monkeypatch.setattr(EmulatedModule, "descending", True)
