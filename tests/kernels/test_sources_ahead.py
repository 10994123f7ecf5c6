"""CUDA sources compiled in processes of their own."""

from pathlib import Path

import pytest

pytest.importorskip("cuda.core")

from pcnn.kernels import sources_ahead
from pcnn.kernels.compiler import cubin, key
from pcnn.kernels.cubin_cache import folder, read


def test_missing_sources_are_compiled_into_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    missing = sources_ahead.missing_sources("sm_90a")
    assert {"levels.cu", "steps.cu", "probe.cu"} <= set(missing)
    assert "hash_table.cu" not in missing  # made for the macros of a kernel
    started = sources_ahead.compile_sources_ahead
    assert started((0, 0)).wait(timeout=60) != 0  # no such device

    # a source that is not there keeps none from being compiled
    monkeypatch.setattr(sources_ahead, "missing_sources", lambda arch: ["probe.cu", "none.cu"])
    sources_ahead.compile_missing((9, 0))
    stored = read(folder() / f"{key('probe.cu', 'sm_90a', {})}.cubin")
    assert stored == cubin("probe.cu", "sm_90a", {})
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert "probe.cu" not in sources_ahead.missing_sources("sm_90a")
