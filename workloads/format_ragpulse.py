"""RAGPulse (github.com/flashserve/RAGPulse): JSON lines with seconds as text, lengths and the prompt's components.

A prompt is its components in the order of the record (system prompt, passages, history, web search, user input),
as the dataset's own replay concatenates them. Every component id is one content. Its length stands in the companion
files `1_sys_prompt.jsonl` ... `5_web_search.jsonl` and is taken from those that lie beside the trace. What is not
found there is worked out, request by request in the file's order, so that an id keeps one length throughout:
texts are cut into chunks of 512 tokens, so each chunk but the last of a component that is one text has 512, and
what is then left of `input_length` is shared evenly by the ids not met before. A prompt's remainder (the chat
template: 6 to 12 tokens) is content of its own at the end; where the lengths add up to more, the end is cut.

The trace is two recordings of a week each, and the clock of the second starts at 0 again; whole weeks are added.
"""

import json
from collections.abc import Sequence as Items
from pathlib import Path
from typing import Any

import numpy as np

from .error import WorkloadError
from .format import Format, Head, Reading
from .format_mooncake import check_ids
from .pieces import Prompt, cut
from .rows import Floats, Rows
from .table import Table, read_jsonl

COLUMNS = ("timestamp", "input_length", "output_length", "hash_ids")
CHUNK = 512
ONE_TEXT = frozenset({"sys_prompt", "history", "web_search"})
COMPANIONS = (
    "1_sys_prompt.jsonl", "2_passages.jsonl", "3_history.jsonl", "4_user_input.jsonl", "5_web_search.jsonl",
)
WEEK = 7 * 86_400


def _matches(head: Head) -> bool:
    record = head.record or {}
    return set(COLUMNS) <= record.keys() and isinstance(record["hash_ids"], dict)


def _read(path: Path, reading: Reading) -> Rows:
    table = read_jsonl(path)
    table.need("ragpulse", *COLUMNS)
    time, prompt, output, _ = COLUMNS
    prompts = table.tokens(prompt)
    lengths, found = _companion_lengths(path.parent)
    content = [_content(table, row, tokens, lengths) for row, tokens in enumerate(prompts.tolist())]
    times, notes = _unwrapped(table.seconds(time), table.lines)
    return Rows(prompts, table.tokens(output), times, True, content, notes=(*notes, _lengths_note(found)))


def _content(table: Table, row: int, tokens: int, lengths: dict[int | str, int]) -> Prompt:
    components = table.columns["hash_ids"][row]
    if not isinstance(components, dict):
        raise table.wrong(row, "hash_ids is not an object of component lists")
    ids = [id for component in components.values() for id in check_ids(table, row, component)]
    _work_out(components, ids, tokens, lengths)
    pieces = cut(((id, lengths[id]) for id in ids), tokens)
    rest = tokens - sum(length for _, length in pieces)
    return (*pieces, (f"rest of row {row}", rest)) if rest else pieces


def _work_out(
    components: dict[str, Any], ids: list[int | str], tokens: int, lengths: dict[int | str, int],
) -> None:
    """Give each id that has none a length, as described above."""
    for name in ONE_TEXT & components.keys():
        for id in components[name][:-1]:
            lengths.setdefault(id, CHUNK)
    unknown = [id for id in dict.fromkeys(ids) if id not in lengths]
    left = tokens - sum(lengths.get(id, 0) for id in ids)
    for id in unknown:
        lengths[id] = max(1, min(CHUNK, left // len(unknown)))


def _companion_lengths(folder: Path) -> tuple[dict[int | str, int], list[str]]:
    lengths: dict[int | str, int] = {}
    found = [name for name in COMPANIONS if (folder / name).is_file()]
    for name in found:
        table = read_jsonl(folder / name)
        lengths.update(zip(_id_column(table), table.tokens("token_length").tolist(), strict=True))
    return lengths, found


def _id_column(table: Table) -> list[Any]:
    table.need("ragpulse", "token_length")
    ids = [name for name in table.columns if name.endswith("_id")]
    if len(ids) != 1:
        raise WorkloadError(f"{table.path}: needs one column of ids beside token_length, found {json.dumps(ids)}")
    return check_ids(table, 0, table.columns[ids[0]])  # type: ignore[return-value]


def _lengths_note(found: list[str]) -> str:
    missing = [name for name in COMPANIONS if name not in found]
    if not missing:
        return "component lengths are those of the dataset"
    return f"component lengths are worked out: {', '.join(missing)} not found beside the trace"


def _unwrapped(times: Floats, lines: Items[int]) -> tuple[Floats, list[str]]:
    """Adds a week at every fall of more than half a week."""
    falls = np.diff(times, prepend=times[0]) < -WEEK / 2
    if not falls.any():
        return times, []
    where = ", ".join(str(lines[row]) for row in np.flatnonzero(falls).tolist())
    return times + WEEK * np.cumsum(falls), [f"the clock starts again at line {where}: continued a week later"]


RAGPULSE = Format("ragpulse", "RAGPulse JSONL: seconds as text, lengths, ids of prompt components", _matches, _read)
