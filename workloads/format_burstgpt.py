"""BurstGPT (github.com/HPMLL/BurstGPT), both headers: seconds, request tokens, response tokens.

Session ids, elapsed times, models and log types are not used. Failed requests have no response tokens.
"""

from pathlib import Path

from .format import Format, Head, Reading
from .rows import Rows
from .table import read_csv

COLUMNS = ("Timestamp", "Request tokens", "Response tokens")


def _matches(head: Head) -> bool:
    return set(COLUMNS) <= set(head.fields)


def _read(path: Path, reading: Reading) -> Rows:
    table = read_csv(path, COLUMNS)
    table.need("burstgpt", *COLUMNS)
    time, prompt, output = COLUMNS
    return Rows(table.tokens(prompt), table.tokens(output), table.seconds(time), dated=True)


BURSTGPT = Format("burstgpt", "BurstGPT CSV, v1 and v2 headers: seconds, request and response tokens", _matches, _read)
