"""Processed traces of vidur (github.com/microsoft/vidur): arrived_at,num_prefill_tokens,num_decode_tokens.

Some have no arrivals; derived columns (num_total_tokens, pd_ratio) are not used.
"""

from pathlib import Path

from .format import Format, Head, Reading
from .rows import Rows
from .table import read_csv

TIME = "arrived_at"
COLUMNS = ("num_prefill_tokens", "num_decode_tokens")


def _matches(head: Head) -> bool:
    return set(COLUMNS) <= set(head.fields)


def _read(path: Path, reading: Reading) -> Rows:
    table = read_csv(path, (TIME, *COLUMNS))
    table.need("vidur", *COLUMNS)
    prompt, output = COLUMNS
    times = table.seconds(TIME) if TIME in table.columns else None
    return Rows(table.tokens(prompt), table.tokens(output), times)


VIDUR = Format("vidur", "vidur CSV: arrived_at (may be missing), prefill and decode tokens", _matches, _read)
