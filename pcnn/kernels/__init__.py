from pcnn.kernels.cuda import Module, module

__all__ = ["Module", "module"]
