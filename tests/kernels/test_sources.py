from pathlib import Path

import pytest

from pcnn.kernels.sources import kernels, texts, threads_of, variants_of


@pytest.fixture
def written(tmp_path: Path):
    """A source with this text, by its path; every test has a folder, so nothing is remembered."""

    def write(text: str, name: str = "toy.cu") -> str:
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    return write


def test_an_included_file_is_read_once_wherever_it_lies(written) -> None:
    written('#include "common.cuh"\nint near;', "near.cuh")
    source = written('#include "near.cuh"\n#include "common.cuh"\n // #include <vector>\n')
    assert list(texts(source)) == ["toy.cu", "common.cuh", "near.cuh"]


@pytest.mark.parametrize("include", ["<cstdint>", "<cuda_fp16.h>", "NAME"])
def test_only_own_files_are_included(written, include) -> None:
    with pytest.raises(ValueError, match=f"toy.cu includes {include}: .*own files only"):
        texts(written(f"#include {include}\n"))


THREADS = """
#define WIDE 512
#ifndef THREADS
#define THREADS 128  // as tuned
#endif
constexpr int WARPS = 4;
static constexpr int ROWS = 32 * WARPS;
// KERNEL(commented, A, 64)
/* KERNEL(commented_too, A, 64) */
KERNEL(number, A, 256) { }
KERNEL(macro, A, WIDE) { }
KERNEL(choice, A, THREADS) { }
KERNEL(product, A, 32 * WARPS) { }
KERNEL(derived, A, ROWS) { }
KERNEL(
    broken_over_lines,
    A,
    96
) { }
KERNEL(unknown, A, NOWHERE) { }
KERNEL(too_many, A, 32 * 64) { }
KERNEL(circular, A, LOOP) { }
#define LOOP LOOP
"""


def test_the_block_size_is_what_the_declaration_says(written) -> None:
    source = written(THREADS)
    sizes = {"number": 256, "macro": 512, "choice": 128, "product": 128, "derived": 128}
    for kernel, threads in (*sizes.items(), ("broken_over_lines", 96)):
        assert threads_of(source, kernel, {}) == threads, kernel
    assert threads_of(source, "choice", {"THREADS": 64}) == 64  # a given macro wins
    for kernel in ("unknown", "too_many", "circular"):
        with pytest.raises(ValueError, match=f"the block size of {kernel}"):
            threads_of(source, kernel, {})
    with pytest.raises(LookupError, match="no kernel 'commented'; it has number, macro"):
        threads_of(source, "commented", {})


def test_missing_files_are_named(written) -> None:
    with pytest.raises(FileNotFoundError, match=r"no CUDA source .*nothing.cu; there are .*probe"):
        texts("nothing.cu")
    with pytest.raises(FileNotFoundError, match=r"toy.cu includes gone.cuh, which is in neither"):
        texts(written('#include "gone.cuh"'))


def test_the_declaration_macro_itself_is_no_kernel() -> None:
    assert kernels("probe.cu") == {"fill": ("FillArguments", "256")}


def test_variants_are_combined(written) -> None:
    assert list(variants_of(written("// no choices\n"))) == [{}]
    source = written(
        "// variants: BITS=32 | BITS=64\n// variants: SIGN=-1 K=3 | SIGN=1 K=5\n", "b.cu"
    )
    assert list(variants_of(source)) == [
        {"BITS": bits, "SIGN": sign, "K": k} for bits in (32, 64) for sign, k in ((-1, 3), (1, 5))
    ]


def test_a_misspelt_variant_is_refused(written) -> None:
    with pytest.raises(ValueError, match="must be NAME=number"):
        list(variants_of(written("// variants: BITS 32\n")))
