"""The trace's columns as Arrow types."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from .schema import Column

LONG = frozenset({"step", "context_tokens", "attended_tokens", "pending_tokens"})
"""Columns that may pass 2**31: sums of context lengths and their squares. The other counts are 32 bits wide."""

_TYPES = {
    "int": pa.int32(), "count": pa.int32(), "float": pa.float64(), "text": pa.string(),
    "ints": pa.list_(pa.int32()), "floats": pa.list_(pa.float64()),
}


def arrow_type(column: Column) -> Any:
    return pa.int64() if column.name in LONG else _TYPES[column.kind]


def arrow_schema(columns: Sequence[Column]) -> Any:
    return pa.schema([(column.name, arrow_type(column)) for column in columns])


def integers(name: str, values: NDArray[np.int64]) -> NDArray[Any]:
    """Whole numbers in the width of the column `name`. Raises ValueError where they do not fit."""
    if name in LONG:
        return values
    narrow = np.iinfo(np.int32)
    if len(values) and (values.max() > narrow.max or values.min() < narrow.min):
        raise ValueError(f"column {name}: a value is beyond 32 bits: {int(np.abs(values).max())}")
    return values.astype(np.int32)


def lists(values: NDArray[Any], sizes: NDArray[np.int64], column: Column) -> Any:
    """A list column from its flat values and the length of each list."""
    offsets = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=offsets[1:])
    if offsets[-1] != len(values):
        raise ValueError(f"column {column.name}: {len(values)} values for lists of {int(offsets[-1])} in all")
    kind = arrow_type(column)
    items = pa.array(values, kind.value_type)
    return pa.ListArray.from_arrays(pa.array(integers("offsets", offsets)), items, type=kind)


def table(columns: Sequence[Column], data: Mapping[str, Any]) -> Any:
    """A table of exactly `columns`, in their order; `data` maps a name to a numpy array, a list or an Arrow array."""
    schema = arrow_schema(columns)
    return pa.table([pa.array(data[c.name], arrow_type(c)) for c in columns], schema=schema)


def numbers(column: Any) -> NDArray[Any]:
    """A numeric Arrow column as numpy: int64, or float64 with NaN for null; no copy where the type allows it."""
    values: NDArray[Any] = column.to_numpy()
    return values.astype(np.int64) if values.dtype.kind == "i" and values.dtype != np.int64 else values


def flat(column: Any) -> NDArray[Any]:
    """The values of a list column, end to end."""
    joined = column.combine_chunks()
    values: NDArray[Any] = joined.flatten().to_numpy(zero_copy_only=False)
    return values


def sizes(column: Any) -> NDArray[np.int64]:
    """The length of each list of a list column."""
    offsets: NDArray[Any] = column.combine_chunks().offsets.to_numpy()
    starts = offsets.astype(np.int64)
    return starts[1:] - starts[:-1]
