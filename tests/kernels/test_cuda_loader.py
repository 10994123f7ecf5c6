import subprocess
import sys
from pathlib import Path

import pytest
import torch

from pcnn.kernels import compiler, cuda, sources
from pcnn.kernels.bindings import require
from pcnn.kernels.compiler import architecture, cubin, key

TOY = """
#include "near.cuh"
struct FillArguments { int* out; };
KERNEL(toy, FillArguments, THREADS) { a.out[threadIdx.x] = VALUE; }
"""
NEAR = '#include "common.cuh"\n#define VALUE 3\n#ifndef THREADS\n#define THREADS 32\n#endif\n'


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "pcnn" / "cubin"


@pytest.fixture
def toy(tmp_path: Path) -> str:
    (tmp_path / "near.cuh").write_text(NEAR)
    (tmp_path / "toy.cu").write_text(TOY)
    return str(tmp_path / "toy.cu")


def rewrite(path: Path, text: str) -> None:
    """Change a source as between two processes."""
    path.write_text(text)
    sources.texts.cache_clear()


def test_the_key_holds_all_that_the_code_depends_on(
    toy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [key(toy, "sm_80", {})]
    assert key(toy, "sm_80", {}) == keys[0]
    keys.append(key(toy, "sm_90a", {}))
    keys.append(key(toy, "sm_80", {"THREADS": 64}))
    keys.append(key(toy, "sm_80", {"THREADS": 128}))
    rewrite(tmp_path / "near.cuh", NEAR.replace("VALUE 3", "VALUE 4"))
    keys.append(key(toy, "sm_80", {}))
    rewrite(Path(toy), TOY + "// more\n")
    keys.append(key(toy, "sm_80", {}))
    monkeypatch.setattr(compiler, "STANDARD", "c++20")
    keys.append(key(toy, "sm_80", {}))
    monkeypatch.setattr(compiler, "require", lambda: "99.1")
    keys.append(key(toy, "sm_80", {}))
    assert len(set(keys)) == len(keys)
    assert key(toy, "sm_80", {"A": 1, "B": 2}) == key(toy, "sm_80", {"B": 2, "A": 1})


def test_a_changed_include_is_compiled_anew(toy: str, tmp_path: Path, cache: Path) -> None:
    first = cubin(toy, "sm_80", {})
    assert cubin(toy, "sm_80", {}) == first
    assert len(list(cache.glob("*.cubin"))) == 1
    rewrite(tmp_path / "near.cuh", NEAR.replace("VALUE 3", "VALUE 4"))
    assert cubin(toy, "sm_80", {}) != first
    assert len(list(cache.glob("*.cubin"))) == 2


def test_the_cpu_is_told_what_serves_it() -> None:
    with pytest.raises(ValueError, match=r"probe.cu .* on cpu: kernels need a CUDA device.*auto"):
        cuda.module("probe.cu", torch.device("cpu"))


def test_a_loader_can_be_added(monkeypatch: pytest.MonkeyPatch) -> None:
    def loader(source: str, device: torch.device, **defines: int) -> object:
        return source, device, defines

    monkeypatch.setitem(cuda.LOADERS, "cpu", loader)
    cpu = torch.device("cpu")
    assert cuda.module("probe.cu", cpu, BITS=32) == ("probe.cu", cpu, {"BITS": 32})


@pytest.mark.parametrize(
    ("package", "torch_cuda", "extra"),
    [
        ("cuda.core", None, "cu13"),
        ("cuda.bindings.nvrtc", "12.8", "cu12"),
        ("cuda.bindings.driver", None, "cu13"),
    ],
)
def test_a_missing_package_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, package: str, torch_cuda: str | None, extra: str
) -> None:
    monkeypatch.setattr(torch.version, "cuda", torch_cuda)
    monkeypatch.setattr("pcnn.kernels.bindings.driver_cuda", lambda: None)
    monkeypatch.setitem(sys.modules, package, None)
    words = rf"{package}(.|\n)*pip install 'pcnn3d\[{extra}\]'"
    for call in (lambda: cubin("probe.cu", "sm_80", {}), lambda: architecture((8, 0))):
        with pytest.raises(ImportError, match=words) as said:
            call()
        assert len(str(said.value).splitlines()) <= 3


def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    from cuda.bindings import nvrtc

    def missing() -> None:
        raise RuntimeError('Failure finding "libnvrtc.so.13"\nsearched here\nand there\nand there')

    monkeypatch.setattr(nvrtc, "nvrtcVersion", missing)
    with pytest.raises(ImportError, match=r"libnvrtc.so.13(.|\n)*pip install 'pcnn3d\[cu") as said:
        require()
    assert len(str(said.value).splitlines()) <= 3


def test_nothing_of_cuda_is_imported_before_a_kernel_is_asked_for() -> None:
    script = "import sys, torch; before = set(sys.modules)\n"
    script += "import pcnn, pcnn.nn, pcnn.ops, pcnn.kernels.cuda\n"
    script += "print([name for name in set(sys.modules) - before if name.startswith('cuda')])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
