"""Every CUDA source compiles without a warning; no GPU is needed.

For Hopper always, for the other architectures that are served with --slow.
"""

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from pcnn.kernels.compiler import architecture, compile_source
from pcnn.kernels.sources import FOLDER, kernels, texts, threads_of, variants_of

HOPPER = "sm_90a"
ARCHITECTURES = ("sm_80", HOPPER, "sm_100", "sm_120")
SOURCES = sorted(path.name for path in FOLDER.glob("*.cu"))


def cases() -> Iterator[object]:
    """Every variant of a source for Hopper; the first one for every architecture."""
    for source in SOURCES:
        for number, variant in enumerate(variants_of(source)):
            macros = ",".join(f"{name}={value}" for name, value in variant.items())
            for arch in ARCHITECTURES if number == 0 else (HOPPER,):
                marks = [pytest.mark.slow] if arch != HOPPER else []
                case = f"{source}-{macros}-{arch}"
                yield pytest.param(source, variant, arch, id=case, marks=marks)


@pytest.mark.parametrize(("source", "variant", "arch"), list(cases()))
def test_a_source_compiles(source: str, variant: dict[str, int], arch: str) -> None:
    assert source in texts(source)  # raises at an include of a file that is not the project's own
    compiled = compile_source(source, arch, variant)
    # a warning is mended in the source ([[maybe_unused]] where a macro decides), not kept
    assert not compiled.log, compiled.log
    assert compiled.cubin[:4] == b"\x7fELF"
    # a kernel may be there under some macros only
    built = [name for name in kernels(source) if f".text.{name}\0".encode() in compiled.cubin]
    assert built
    for kernel in built:
        # the block size read from the text is the bound that the compiler was given
        threads = threads_of(source, kernel, variant)
        assert threads % 32 == 0, "collectives want whole warps"
        assert bound(threads) in compiled.cubin


def bound(threads: int) -> bytes:
    """A kernel's largest block as the ELF file notes it: attribute EIATTR_MAX_THREADS, 12 bytes."""
    return b"\x04\x05\x0c\x00" + struct.pack("<3I", threads, 1, 1)


@pytest.mark.parametrize(
    ("capability", "arch"),
    [((8, 0), "sm_80"), ((9, 0), "sm_90a"), ((10, 0), "sm_100"), ((12, 0), "sm_120")],
)
def test_every_architecture_served_is_compiled_here(capability, arch) -> None:
    assert architecture(capability) == arch
    assert arch in ARCHITECTURES


def test_a_newer_device_runs_the_code_of_its_major(monkeypatch: pytest.MonkeyPatch) -> None:
    from cuda.bindings import nvrtc

    monkeypatch.setattr(nvrtc, "nvrtcGetSupportedArchs", lambda: (0, [80, 86, 90, 100]))
    assert architecture((8, 9)) == "sm_86"
    assert architecture((10, 3)) == "sm_100"
    with pytest.raises(RuntimeError, match=r"sm_80, sm_86, sm_90, sm_100.*sm_120"):
        architecture((12, 0))


def test_a_mistake_in_a_source_is_shown(tmp_path: Path) -> None:
    source = tmp_path / "wrong.cu"
    source.write_text(
        '#include "common.cuh"\nstruct A { int* out; };\nKERNEL(wrong, A, 32) { a.in = 0; }\n'
    )
    with pytest.raises(RuntimeError, match=r"wrong.cu does not compile for sm_80 \(N=3\)") as said:
        compile_source(str(source), "sm_80", {"N": 3})
    assert 'wrong.cu(3): error: class "A" has no member "in"' in str(said.value)


def test_a_warning_is_shown(tmp_path: Path) -> None:
    source = tmp_path / "doubtful.cu"
    source.write_text(
        '#include "common.cuh"\nstruct A { int* out; };\nKERNEL(doubtful, A, 32) { int unused; }\n'
    )
    assert '"unused" was declared but never referenced' in (
        compile_source(str(source), "sm_80", {}).log
    )
