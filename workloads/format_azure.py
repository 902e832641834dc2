"""Azure LLM inference traces (github.com/Azure/AzurePublicDataset): TIMESTAMP,ContextTokens,GeneratedTokens."""

from pathlib import Path

from .format import Format, Head, Reading
from .rows import Rows
from .table import read_csv

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


def _matches(head: Head) -> bool:
    return set(COLUMNS) <= set(head.fields)


def _read(path: Path, reading: Reading) -> Rows:
    table = read_csv(path, COLUMNS)
    table.need("azure", *COLUMNS)
    time, prompt, output = COLUMNS
    return Rows(table.tokens(prompt), table.tokens(output), table.dates(time), dated=True)


AZURE = Format("azure", "Azure LLM inference CSV (2023, 2024): dates, context and generated tokens", _matches, _read)
