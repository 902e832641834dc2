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
SMALLER = (256, 128, 64, 32, 16)
"""What else an id may stand for, as `arcsim export` and other tools write: the file's own counts tell which."""


def _matches(head: Head) -> bool:
    record = head.record or {}
    return set(COLUMNS) <= record.keys() and isinstance(record["hash_ids"], list)


def _read(path: Path, reading: Reading) -> Rows:
    table = read_jsonl(path)
    table.need("mooncake", *COLUMNS)
    time, prompt, output, hashes = COLUMNS
    prompts = table.tokens(prompt)
    pairs = list(zip(table.columns[hashes], prompts.tolist(), strict=True))
    block = _block(pairs)
    content = [_content(table, row, ids, tokens, block) for row, (ids, tokens) in enumerate(pairs)]
    notes = () if block == BLOCK else (f"a hash id for each {block} tokens",)
    return Rows(prompts, table.tokens(output), table.seconds(time) / 1000, content=content, notes=notes)


def _block(pairs: Items[tuple[Any, int]]) -> int:
    """The size that explains how many ids every prompt has; `BLOCK` where none does."""
    counts = [(len(ids), tokens) for ids, tokens in pairs if isinstance(ids, list)]
    for size in (BLOCK, *SMALLER):
        if all(count == -(-tokens // size) for count, tokens in counts):
            return size
    return BLOCK


def _content(table: Table, row: int, ids: Any, tokens: int, block: int) -> Prompt:
    """Each hash id is content of that many tokens, so prompts that share leading ids share that prefix."""
    check_ids(table, row, ids)
    if len(ids) != -(-tokens // block):
        raise table.wrong(row, f"{len(ids)} hash_ids for input_length {tokens}: there is one for each {block} tokens")
    return tuple((id, min(block, tokens - block * index)) for index, id in enumerate(ids))


def check_ids(table: Table, row: int, ids: Any) -> Items[int | str]:
    """Raises WorkloadError for anything but a list of content ids."""
    if not isinstance(ids, list) or not all(type(id) in (int, str) for id in ids):
        raise table.wrong(row, "hash ids are not a list of numbers or texts")
    return ids


MOONCAKE = Format("mooncake", "Mooncake JSONL: milliseconds, lengths, a hash id per 512 tokens", _matches, _read)
