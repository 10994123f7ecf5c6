"""Switches of spconv's kernels, for programs that set them; nothing here reads them."""

SPCONV_USE_DIRECT_TABLE = True
SPCONV_DO_SORT = True
#: TF32 follows torch's own switch (``torch.backends.cuda.matmul.allow_tf32``).
SPCONV_ALLOW_TF32 = False
#: Weights are ``[C_out, *kernel, C_in]``.
ALL_WEIGHT_IS_KRSC = True
FILTER_HWIO = False
SAVED_WEIGHT_LAYOUT = ""
