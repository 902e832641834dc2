"""Attention on a CPU by a small C++ kernel, for the rows that have few queries; the others go the plain way."""

import ctypes
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from ..kernels.build import BuildError, load
from .base import Attention, Needs, Rows, Spec
from .reference import Row, attend_row, each_row

FEW = 16
"""Queries up to which a row goes to the kernel, which treats each by itself."""

SOURCE = Path(__file__).parents[1] / "kernels" / "paged.cpp"


class _Shape(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int64) for name in (
            "heads", "kv_heads", "key_dim", "value_dim", "block_size", "token_stride", "head_stride", "window",
        )),
        ("scale", ctypes.c_float), ("softcap", ctypes.c_float),
    )


class _Row(ctypes.Structure):
    _fields_ = (("start", ctypes.c_int64), ("queries", ctypes.c_int64), ("length", ctypes.c_int64),
                ("pages", ctypes.c_void_p))


class Cpp(Attention):
    """Reads pages where they lie, all heads that share keys together, in float32."""

    name = "cpp"
    computes_on = "cpu"

    def __init__(self) -> None:
        self._few = (_Row * 0)()
        self._many: list[Row] = []

    @classmethod
    def refusal(cls, needs: Needs) -> str | None:
        if needs.dtype not in (torch.float32, torch.bfloat16):
            return f"it computes float32 and bfloat16, not {str(needs.dtype).removeprefix('torch.')}"
        try:
            library()
        except BuildError as error:
            return str(error)
        return None

    def begin(self, rows: Rows, block_size: int) -> None:
        few: list[Row] = []
        self._many = []
        for row in each_row(rows, block_size):
            (few if row.stop - row.start <= FEW else self._many).append(row)
        self._few = (_Row * len(few))(
            *(_Row(row.start, row.stop - row.start, row.length, row.pages.data_ptr()) for row in few)
        )

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, rows: Rows, spec: Spec) -> Tensor:
        out = query.new_empty((query.shape[0], query.shape[1], values.shape[-1]))
        for row in self._many:
            attend_row(query, keys, values, row, spec, out)
        if len(self._few):
            self._call(query if query.stride(2) == 1 else query.contiguous(), keys, values, spec, out)
        return out

    def _call(self, query: Tensor, keys: Tensor, values: Tensor, spec: Spec, out: Tensor) -> None:
        shape = _Shape(
            query.shape[1], keys.shape[2], keys.shape[3], values.shape[3], keys.shape[1], query.stride(0),
            query.stride(1), spec.window or 0, spec.scale, spec.softcap or 0.0,
        )
        kernel = library().paged_attention_float32 if out.dtype == torch.float32 else library().paged_attention_bfloat16
        kernel(
            ctypes.c_void_p(query.data_ptr()), ctypes.c_void_p(keys.data_ptr()), ctypes.c_void_p(values.data_ptr()),
            ctypes.c_void_p(out.data_ptr()), ctypes.byref(shape), self._few, ctypes.c_int64(len(self._few)),
        )


@cache
def library() -> ctypes.CDLL:
    """The compiled kernel. Raises `BuildError`."""
    loaded = load(SOURCE)
    for name in ("paged_attention_float32", "paged_attention_bfloat16"):
        getattr(loaded, name).restype = None
    return loaded
