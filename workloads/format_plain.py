"""Plain CSV or JSON lines of arrival, prompt and output under their usual names.

Arrivals are seconds or dates (or milliseconds under a name that ends in `_ms`). A CSV without a header has the
columns prompt, output or arrival, prompt, output. `max_tokens` and `priority` are honoured where there are any.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np

from .error import WorkloadError
from .fields import seconds
from .format import Format, Head, Reading, read_head
from .rows import Floats, Integers, Rows
from .table import Table, read_csv, read_jsonl

ARRIVALS = (
    "arrival", "arrived_at", "arrival_time", "arrival_s", "arrival_ms", "time", "time_s", "time_ms", "timestamp",
    "timestamp_s", "timestamp_ms",
)
PROMPTS = (
    "prompt", "prompt_tokens", "prompt_len", "prompt_length", "input", "input_tokens", "input_len", "input_length",
    "num_prefill_tokens", "prefill_tokens", "context_tokens", "request_tokens",
)
OUTPUTS = (
    "output", "output_tokens", "output_len", "output_length", "num_decode_tokens", "decode_tokens",
    "generated_tokens", "completion_tokens", "response_tokens",
)
HEADLESS = {2: ("prompt", "output"), 3: ("arrival", "prompt", "output")}


def _matches(head: Head) -> bool:
    names = {_plain(name) for name in (head.record or head.fields)}
    return bool(names & set(PROMPTS) and names & set(OUTPUTS)) or _headless(head)


def _headless(head: Head) -> bool:
    return len(head.fields) in HEADLESS and all(_is_number(field) for field in head.fields)


def _is_number(field: str) -> bool:
    try:
        seconds(field)
    except ValueError:
        return False
    return True


def _plain(name: str) -> str:
    return name.strip().lower().replace(" ", "_").replace("-", "_")


def _read(path: Path, reading: Reading) -> Rows:
    table, notes = read_table(path)
    time = next((name for name in ARRIVALS if name in table.columns), None)
    prompt, output = _column(table, PROMPTS, "prompt"), _column(table, OUTPUTS, "output")
    prompts, outputs = table.tokens(prompt), table.tokens(output)
    return Rows(
        prompts, outputs, None if time is None else _times(table, time),
        notes=(*notes, f"columns: {', '.join(name for name in (time, prompt, output) if name)}"),
        max_tokens=_max_tokens(table, outputs) if "max_tokens" in table.columns else None,
        priorities=table.integers("priority", prompts * 0) if "priority" in table.columns else None,
    )


def read_table(path: Path) -> tuple[Table, tuple[str, ...]]:
    """The table under plain names (small letters, underscores), and a note where the file names no columns."""
    head = read_head(path)
    if _headless(head):
        names = HEADLESS[len(head.fields)]
        return read_csv(path, header=names), (f"no header: columns taken as {', '.join(names)}",)
    is_json = head.record is not None or path.suffix.lower() in (".jsonl", ".json", ".ndjson")
    table = read_jsonl(path) if is_json else read_csv(path)
    columns = {_plain(name): column for name, column in table.columns.items()}
    return replace(table, columns=columns), ()


def _column(table: Table, names: tuple[str, ...], what: str) -> str:
    for name in names:
        if name in table.columns:
            return name
    raise WorkloadError(
        f"{table.path}: no column for the {what} (any of {', '.join(names)}); found: {', '.join(table.found)}"
    )


def _max_tokens(table: Table, outputs: Integers) -> Integers:
    """Where the field is empty, or the output is, the client asked for at least one token."""
    limits = table.tokens("max_tokens", np.maximum(outputs, 1))
    for row in np.flatnonzero(limits == 0).tolist():
        raise table.wrong(row, "max_tokens = 0: a client asks for at least one token")
    return limits


def _times(table: Table, name: str) -> Floats:
    first = table.columns[name][0]
    if isinstance(first, str) and not _is_number(first) and "-" in first.strip()[1:]:
        return table.dates(name)
    return table.seconds(name) / (1000 if name.endswith("_ms") else 1)


PLAIN = Format("plain", "CSV or JSONL with arrival, prompt, output (max_tokens, priority)", _matches, _read)
