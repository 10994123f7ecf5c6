import pytest
import torch

from tests import sanitized


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize("name", sanitized.PARTS)
def test_parts_compare_results_and_find_them_right(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sanitized, "ROWS", 40)
    monkeypatch.setattr(sanitized, "KERNELS", [sanitized.Kernel.of(3, 2)])
    number, bad = sanitized.wrong(sanitized.PARTS[name], torch.device("cpu"))
    assert number > 0
    assert bad == []
