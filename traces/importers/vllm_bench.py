"""Results of `vllm bench serve --save-result --save-detailed` (SGLang's bench_serving writes the same names)."""

from itertools import accumulate
from math import nan
from pathlib import Path
from typing import Any

from ..run import Run
from .errors import ImportFault
from .importer import FileImporter
from .options import ImportOptions
from .results import Row, chosen, documents, first_line, number, request_run, tokens
from .source import Head

DETAILS = ("input_lens", "output_lens", "ttfts", "itls")
CLIENT = ("date", "backend", "endpoint_type", "model_id", "request_rate", "burstiness", "max_concurrency", "duration")


def _recognises(head: Head) -> bool:
    text = head.text.lstrip()
    return text.startswith("{") and ('"input_lens"' in text or '"request_throughput"' in text)


def _read(path: Path, options: ImportOptions) -> Run:
    found = [each for each in documents(path) if isinstance(each, dict)]
    result, notes = chosen(path, found, options.rank, "result")
    missing = [name for name in DETAILS if not isinstance(result.get(name), list)]
    if missing:
        raise ImportFault(f"{path}: no {', '.join(missing)} of each request: save them with --save-detailed")
    count = len(result["ttfts"])
    if any(len(result[name]) != count for name in DETAILS):
        raise ImportFault(f"{path}: {', '.join(f'{len(result[name])} {name}' for name in DETAILS)}: not of one run")
    starts = result.get("start_times")
    if not isinstance(starts, list) or len(starts) != count:
        starts = [0.0] * count
        notes.append("the file does not say when requests were sent: all arrivals are 0, and so is what counts on them")
    errors = result.get("errors")
    errors = errors if isinstance(errors, list) and len(errors) == count else [""] * count
    rows = [_row(result, index, number(starts[index]), errors[index]) for index in range(count)]
    notes += _chunk_note(rows)
    return request_run(path, "vllm-bench", rows, notes, {name: result.get(name) for name in CLIENT})


def _row(result: dict[str, Any], index: int, start: float, error: Any) -> Row:
    """The last token came when the first and all gaps had passed, as the client itself counts."""
    gaps = result["itls"][index]
    output, ttft = tokens(result["output_lens"][index]), number(result["ttfts"][index])
    row: Row = {"arrival": start, "prompt_tokens": tokens(result["input_lens"][index]), "output_tokens": output}
    if error:
        return row | {"status": "aborted", "reason": first_line(error)}
    gaps = [number(gap) for gap in gaps] if isinstance(gaps, list) else []
    if not ttft > 0 or (output > 1 and not gaps):
        return row | {"status": "finished", "finish": nan}
    times = list(accumulate(gaps, initial=start + ttft))
    return row | {"first_token": times[0], "finish": times[-1], "token_times": times}


def _chunk_note(rows: list[Row]) -> list[str]:
    served = [row for row in rows if row.get("token_times")]
    chunked = sum(len(row["token_times"]) != row["output_tokens"] for row in served)
    silent = sum("token_times" not in row and row.get("status") == "finished" for row in rows)
    notes = [f"{chunked} requests came in other pieces than tokens: their token times are those of the pieces"]
    blind = [f"{silent} requests were not streamed: when their tokens came is not known"]
    return (notes if chunked else []) + (blind if silent else [])


VLLM_BENCH = FileImporter(
    "vllm-bench", "results of `vllm bench serve --save-result --save-detailed`", _recognises, _read,
)
