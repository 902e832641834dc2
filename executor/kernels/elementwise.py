"""Norm, gated activation and rotary embedding on a CPU, float32 and bfloat16, each in one pass over memory."""

import ctypes
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from .build import load

SOURCE = Path(__file__).with_name("elementwise.cpp")
DTYPES = (torch.float32, torch.bfloat16)


class Elementwise:
    """The kernels for one number format. Raises `BuildError` where they cannot be built."""

    def __init__(self, dtype: torch.dtype) -> None:
        number = str(dtype).removeprefix("torch.")
        self.dtype = dtype
        self._norm, self._product, self._rotate = (
            _kernel(f"{name}_{number}", tensors, sizes, tail) for name, tensors, sizes, tail in (
                ("rms_norm", 3, 2, (ctypes.c_float,)), ("silu_product", 3, 1, ()), ("rotate", 4, 5, ()),
            )
        )

    def takes(self, *tensors: Tensor) -> bool:
        return all(tensor.dtype == self.dtype for tensor in tensors)

    def rms_norm(self, x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
        """`weight` [dim] times `x` [..., dim] over the root of its mean square."""
        x = x.contiguous()
        out = torch.empty_like(x)
        dim = x.shape[-1]
        self._norm(x.data_ptr(), weight.data_ptr(), out.data_ptr(), x.numel() // dim, dim, epsilon)
        return out

    def silu_product(self, gate: Tensor, up: Tensor) -> Tensor:
        """`silu(gate) * up`, of one shape."""
        gate, up = gate.contiguous(), up.contiguous()
        out = torch.empty_like(gate)
        self._product(gate.data_ptr(), up.data_ptr(), out.data_ptr(), gate.numel())
        return out

    def rotate(self, x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
        """`x` [1, heads, tokens, dim], its last numbers next to each other; `cosines` and `sines` [1, tokens, dim]."""
        _, heads, tokens, dim = x.shape
        out = x.new_empty((1, tokens, heads, dim))
        self._rotate(
            x.data_ptr(), cosines.data_ptr(), sines.data_ptr(), out.data_ptr(), tokens, heads, dim, x.stride(2),
            x.stride(1),
        )
        return out.transpose(1, 2)


@cache
def _library() -> ctypes.CDLL:
    return load(SOURCE)


def _kernel(name: str, tensors: int, sizes: int, tail: tuple[type[ctypes.c_float], ...]) -> "ctypes._NamedFuncPointer":
    kernel = _library()[name]
    kernel.argtypes = (*[ctypes.c_void_p] * tensors, *[ctypes.c_int64] * sizes, *tail)
    kernel.restype = None
    return kernel
