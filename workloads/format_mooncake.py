"""Mooncake traces (github.com/kvcache-ai/Mooncake): JSON lines with milliseconds, lengths and prompt block hashes."""

from collections.abc import Sequence as Items
from pathlib import Path
from typing import Any

from .format import Format, Head, Reading
from .pieces import Prompt
from .rows import Rows
from .table import Table, read_jsonl

COLUMNS = ("timestamp", "input_length", "output_length", "hash_ids")
BLOCK = 512
"""Tokens that one hash id stands for; the last block of a prompt may be partial."""


def _matches(head: Head) -> bool:
    record = head.record or {}
    return set(COLUMNS) <= record.keys() and isinstance(record["hash_ids"], list)


def _read(path: Path, reading: Reading) -> Rows:
    table = read_jsonl(path)
    table.need("mooncake", *COLUMNS)
    time, prompt, output, hashes = COLUMNS
    prompts = table.tokens(prompt)
    pairs = zip(table.columns[hashes], prompts.tolist(), strict=True)
    content = [_content(table, row, ids, tokens) for row, (ids, tokens) in enumerate(pairs)]
    return Rows(prompts, table.tokens(output), table.seconds(time) / 1000, content=content)


def _content(table: Table, row: int, ids: Any, tokens: int) -> Prompt:
    """Each hash id is content of 512 tokens, so prompts that share leading ids share that prefix."""
    check_ids(table, row, ids)
    if len(ids) != -(-tokens // BLOCK):
        raise table.wrong(row, f"{len(ids)} hash_ids for input_length {tokens}: there is one for each {BLOCK} tokens")
    return tuple((id, min(BLOCK, tokens - BLOCK * index)) for index, id in enumerate(ids))


def check_ids(table: Table, row: int, ids: Any) -> Items[int | str]:
    """Raises WorkloadError for anything but a list of content ids."""
    if not isinstance(ids, list) or not all(type(id) in (int, str) for id in ids):
        raise table.wrong(row, "hash ids are not a list of numbers or texts")
    return ids


MOONCAKE = Format("mooncake", "Mooncake JSONL: milliseconds, lengths, a hash id per 512 tokens", _matches, _read)
