"""What became of each request, and the request table made of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .arrow import lists, table
from .schema import REQUEST_COLUMNS

STATUSES = ("finished", "rejected", "aborted", "unfinished")
_TIMES = next(c for c in REQUEST_COLUMNS if c.name == "token_times")
_STAMPS = ("arrival", "first_scheduled", "first_token", "finish")


@dataclass(frozen=True, slots=True)
class RequestRow:
    """One request; times in integer nanoseconds of the run's clock, None where it never came to that.

    `token_times`: when each token was there, nanoseconds, an int64 array or a list of ints.
    """

    id: str
    arrival: int
    first_scheduled: int | None
    first_token: int | None
    finish: int | None
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    recomputed_tokens: int = 0
    preemptions: int = 0
    status: str = "finished"
    reason: str = ""
    token_times: NDArray[np.int64] | Sequence[int] = ()


def request_table(rows: Sequence[RequestRow]) -> Any:
    """The request table (`REQUEST_COLUMNS`), in the order of `rows`; times in seconds."""
    data: dict[str, Any] = {
        column.name: [getattr(row, column.name) for row in rows]
        for column in REQUEST_COLUMNS if column.name not in (*_STAMPS, _TIMES.name)
    }
    for name in _STAMPS:
        data[name] = _seconds([getattr(row, name) for row in rows])
    counts = np.array([len(row.token_times) for row in rows], dtype=np.int64)
    stamps = [np.asarray(row.token_times, dtype=np.int64) for row in rows]
    data[_TIMES.name] = lists((np.concatenate(stamps) if stamps else np.zeros(0)) / 1e9, counts, _TIMES)
    return table(REQUEST_COLUMNS, data)


def _seconds(stamps: Sequence[int | None]) -> NDArray[np.float64]:
    # In integers first: a nanosecond count divides the same way as in the step table.
    known = np.array([stamp is not None for stamp in stamps], dtype=bool)
    seconds = np.array([stamp or 0 for stamp in stamps], dtype=np.int64) / 1e9
    return np.where(known, seconds, np.nan)
