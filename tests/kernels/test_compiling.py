"""From a CUDA source to machine code: what the text says, the compiler, the cache on disk."""

import itertools
import multiprocessing
import os
import re
import struct
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

pytest.importorskip("cuda.core")

from pcnn.kernels import compiler
from pcnn.kernels.compiler import (
    FOLDER,
    architecture,
    cached,
    compile_source,
    cubin,
    kernels,
    key,
    read,
    texts,
    threads_of,
)
from tests.forking import require_fork

HOPPER = "sm_90a"
ARCHITECTURES = {(8, 0): "sm_80", (9, 0): HOPPER, (10, 0): "sm_100", (12, 0): "sm_120"}
NEAR = '#include "common.cuh"\n#define VALUE 3\n#ifndef THREADS\n#define THREADS 32\n#endif\n'
TOY = """
#include "near.cuh"
#include "common.cuh"
// #include <vector>
struct A { int* out; };
#define WIDE 512
#ifndef CHOICE
#define CHOICE 128  // as tuned
#endif
constexpr int WARPS = 4;
static constexpr int ROWS = 32 * WARPS;
// KERNEL(commented, A, 64)
/* KERNEL(commented_too, A, 64) */
KERNEL(toy, A, THREADS) { a.out[threadIdx.x] = VALUE; }
KERNEL(number, A, 256) { }
KERNEL(macro, A, WIDE) { }
KERNEL(choice, A, CHOICE) { }
KERNEL(product, A, 32 * WARPS) { }
KERNEL(derived, A, ROWS + 32) { }
KERNEL(
    broken_over_lines,
    A,
    96
) { }
"""
BLOCKS = {"toy": 32, "number": 256, "macro": 512, "choice": 128, "product": 128, "derived": 160}
KEY = "ab" * 32


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "pcnn" / "cubin"


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., str]:
    """A source with this text, by its path, as if a new process read it."""

    def write(text: str, name: str = "toy.cu") -> str:
        (tmp_path / name).write_text(text)
        for kept in (compiler.texts, compiler.code, compiler.kernels):
            kept.cache_clear()
        return str(tmp_path / name)

    return write


def test_the_text_says_includes_and_blocks(written) -> None:
    written(NEAR, "near.cuh")
    source = written(TOY)
    assert list(texts(source)) == ["toy.cu", "common.cuh", "near.cuh"]
    assert set(kernels(source)) == {*BLOCKS, "broken_over_lines"}
    for kernel, threads in (*BLOCKS.items(), ("broken_over_lines", 96)):
        assert threads_of(source, kernel, {}) == threads, kernel
    assert threads_of(source, "choice", {"CHOICE": 64}) == 64  # a given macro wins
    with pytest.raises(LookupError, match="no kernel 'commented'"):
        threads_of(source, "commented", {})
    for words in ("NOWHERE", "32 * 64", "LOOP"):
        source = written(f"#define LOOP LOOP\nKERNEL(wrong, A, {words}) {{ }}")
        with pytest.raises(ValueError, match="block size of wrong"):
            threads_of(source, "wrong", {})
    with pytest.raises(ValueError, match="includes"):
        texts(written("#include <cstdint>\n"))


def variants_of(source: str) -> Iterator[dict[str, int]]:
    """Sets of macros that a source asks to be compiled with, combined of all such comment lines."""
    asked = re.findall(r"^//\s*variants:\s*(.+)$", (FOLDER / source).read_text(), re.MULTILINE)
    for chosen in itertools.product(*(line.split("|") for line in asked)):
        words = [word.split("=") for part in chosen for word in part.split()]
        yield {name: int(value) for name, value in words}


def every_source() -> Iterator[object]:
    """Every variant of a source for Hopper; the first one for every architecture."""
    for source in sorted(path.name for path in FOLDER.glob("*.cu")):
        for number, variant in enumerate(variants_of(source)):
            macros = ",".join(f"{name}={value}" for name, value in variant.items())
            for arch in ARCHITECTURES.values() if number == 0 else (HOPPER,):
                marks = [pytest.mark.slow] if arch != HOPPER else []
                case = f"{source}-{macros}-{arch}"
                yield pytest.param(source, variant, arch, id=case, marks=marks)


@pytest.mark.parametrize(("source", "variant", "arch"), list(every_source()))
def test_a_source_compiles(source: str, variant: dict[str, int], arch: str) -> None:
    code, log = compile_source(source, arch, variant)
    # a warning is mended in the source ([[maybe_unused]] where a macro decides), not kept
    assert not log, log
    # a kernel may be there under some macros only
    built = [name for name in kernels(source) if f".text.{name}\0".encode() in code]
    assert built
    for kernel in built:
        # the block size read from the text is the bound that the compiler was given
        threads = threads_of(source, kernel, variant)
        assert threads % 32 == 0, "collectives want whole warps"
        bound = b"\x04\x05\x0c\x00" + struct.pack("<3I", threads, 1, 1)  # EIATTR_MAX_THREADS
        assert bound in code


def test_a_device_runs_the_code_of_its_major(monkeypatch: pytest.MonkeyPatch) -> None:
    from cuda.bindings import nvrtc

    for capability, arch in ARCHITECTURES.items():
        assert architecture(capability) == arch
    monkeypatch.setattr(nvrtc, "nvrtcGetSupportedArchs", lambda: (0, [80, 86, 90, 100]))
    assert architecture((8, 9)) == "sm_86"
    assert architecture((10, 3)) == "sm_100"
    with pytest.raises(RuntimeError, match="sm_120"):
        architecture((12, 0))


def test_mistakes_are_shown(written) -> None:
    head = '#include "common.cuh"\nstruct A { int* out; };\nKERNEL(wrong, A, 32) '
    with pytest.raises(RuntimeError, match=r"toy.cu does not compile for sm_80 \(N=3\)") as said:
        compile_source(written(head + "{ a.in = 0; }\n"), "sm_80", {"N": 3})
    assert 'toy.cu(3): error: class "A" has no member "in"' in str(said.value)


def test_the_key_holds_all_that_the_code_depends_on(
    written, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(NEAR, "near.cuh")
    toy = written(TOY)
    first, keys = cubin(toy, "sm_80", {}), [key(toy, "sm_80", {})]
    assert cubin(toy, "sm_80", {}) == first
    assert len(list(cache.glob("*.cubin"))) == 1
    keys += [key(toy, HOPPER, {}), key(toy, "sm_80", {"THREADS": 64})]
    assert key(toy, "sm_80", {"A": 1, "B": 2}) == key(toy, "sm_80", {"B": 2, "A": 1})
    written(NEAR.replace("VALUE 3", "VALUE 4"), "near.cuh")
    keys.append(key(toy, "sm_80", {}))
    assert cubin(toy, "sm_80", {}) != first
    written(TOY + "// more\n")
    keys.append(key(toy, "sm_80", {}))
    monkeypatch.setattr(compiler, "STANDARD", "c++20")
    keys.append(key(toy, "sm_80", {}))
    monkeypatch.setattr(compiler, "require", lambda: "99.1")
    keys.append(key(toy, "sm_80", {}))
    assert len(set(keys)) == len(keys)


def test_missing_sources_are_compiled_ahead(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = compiler.missing_sources(HOPPER)
    assert {"levels.cu", "probe.cu"} <= set(missing)
    assert "hash_table.cu" not in missing  # made for the macros of a kernel
    assert compiler.compile_sources_ahead((0, 0)).wait(timeout=60) != 0  # no such device
    monkeypatch.setattr(compiler, "missing_sources", lambda arch: ["probe.cu"])
    compiler.main("9", "0")  # by a process of its own
    stored = read(cache / f"{key('probe.cu', HOPPER, {})}.cubin")
    assert stored == cubin("probe.cu", HOPPER, {})
    monkeypatch.undo()


def never() -> bytes:
    raise AssertionError("built again")


def test_what_is_stored_whole_is_not_built_again(cache: Path) -> None:
    assert cached(KEY, lambda: b"code") == cached(KEY, never) == b"code"
    (entry,) = cache.glob("*.cubin")
    whole = entry.read_bytes()
    for damaged in (b"", whole[:10], whole[:-1], whole + b"x", whole[:-3] + b"xxx"):
        entry.write_bytes(damaged)
        assert cached(KEY, lambda: b"rebuilt") == cached(KEY, never) == b"rebuilt", damaged


def test_where_nothing_can_be_stored_the_build_serves(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(source: object, target: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.warns(RuntimeWarning, match="cannot be stored") as warned:
        assert cached(KEY, lambda: b"code") == b"code"
    assert len(warned) == 1
    assert not list(cache.glob("*.cubin"))
    assert not list(cache.glob(".*.part"))


def use(log: Path) -> None:
    def slow() -> bytes:
        with log.open("a") as file:
            file.write("built\n")
        time.sleep(0.2)  # others arrive
        return b"code"

    assert cached(KEY, slow) == b"code"


def test_processes_that_start_together_build_once(tmp_path: Path) -> None:
    require_fork()
    make, log = multiprocessing.get_context("fork").Process, tmp_path / "log"
    running = [make(target=use, args=(log,)) for _ in range(4)]
    for one in running:
        one.start()
    for one in running:
        one.join(30)
    assert log.read_text() == "built\n"


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setitem(sys.modules, "cuda.bindings.nvrtc", None)
    for call in (lambda: cubin("probe.cu", "sm_80", {}), lambda: architecture((8, 0))):
        with pytest.raises(ImportError, match=r"cuda.bindings.nvrtc(.|\n)*\[cu12\]"):
            call()
