"""Tests of Triton kernels run on a GPU, or with TRITON_INTERPRET=1 on a CPU."""

import os
from typing import Any

import numpy as np
import pytest
import torch

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"


@pytest.fixture(autouse=True)
def interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add to Triton's interpreter (3.6) loops with computed bounds and products of bfloat16.

    It rounds float32 to bfloat16 towards zero; that is tested with float16. It replaces the
    functions of its language as a kernel begins, and again in every function that the kernel calls,
    which takes almost half the time and changes nothing: here it does so once.
    """
    if not torch.cuda.is_available() and not INTERPRETED:
        pytest.skip("no CUDA device and no TRITON_INTERPRET=1")
    module = pytest.importorskip("triton.runtime.interpreter")
    language = module.tl
    patch_tensor, dot = module._patch_lang_tensor, module.InterpreterBuilder.create_dot
    patch_language = module._patch_lang

    def patched_once(function: Any) -> Any:
        for value in function.__globals__.values():
            here = value is language or value is language.core
            if here and language.core.is_builtin(value.load):
                return patch_language(function)
        return module._LangPatchScope()

    def patched(tensor: Any, scope: Any) -> None:
        patch_tensor(tensor, scope)
        # scalars are arrays of one element, which NumPy 2.4 no longer turns into integers
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    def widened(handle: Any) -> Any:
        """Bfloat16 is kept as the upper half of a float32's bits."""
        if str(handle.dtype.scalar) != "bf16":
            return handle
        data = (handle.data.astype(np.uint32) << 16).view(np.float32)
        return module.TensorHandle(data, module.tl.float32)

    def widened_dot(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        return dot(self, widened(a), widened(b), *rest)

    monkeypatch.setattr(module, "_patch_lang", patched_once)
    monkeypatch.setattr(module, "_patch_lang_tensor", patched)
    monkeypatch.setattr(module.InterpreterBuilder, "create_dot", widened_dot)
