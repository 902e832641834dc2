"""Workloads written in the formats of trace replayers and load generators."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence as Items
from dataclasses import dataclass
from math import inf, nextafter
from pathlib import Path
from shlex import quote

from .arrival import Arrival
from .blocks import BlockIds
from .closed_loop import ClosedLoopWorkload
from .error import WorkloadError
from .format_mooncake import BLOCK, SMALLER
from .pieces import Prompt
from .prefix_tree import PrefixTree
from .words import text_of
from .workload import Workload


@dataclass(frozen=True, slots=True)
class Export:
    """`text`: a line a request. `notes`: what the format cannot say of this workload. `use`: how FILE is replayed."""

    text: str
    count: int
    notes: tuple[str, ...]
    use: str

    def command(self, path: Path) -> str:
        """What a shell is told to replay it from `path`."""
        return self.use.replace("FILE", quote(str(path)))


@dataclass(frozen=True, slots=True)
class ExportFormat:
    """`lines(requests, timed, block)`: `timed` is False of a closed loop, whose requests have no times of their own;
    `block` is the tokens of one hash id, None where the format has none. `use` and `use_untimed`: the command."""

    name: str
    about: str
    needs_times: bool
    hashes: bool
    lines: Callable[[Items[Arrival], bool, int], Iterator[str]]
    use: str
    use_untimed: str = ""


def export(workload: Workload, name: str) -> Export:
    """The whole workload in the format `name`. Raises WorkloadError for one that the format cannot hold."""
    format = export_format(name)
    timed = not isinstance(workload, ClosedLoopWorkload)
    if format.needs_times and not timed:
        others = ", ".join(other.name for other in FORMATS.values() if not other.needs_times)
        raise WorkloadError(
            f"{workload.name} is a closed loop: its requests have no arrival times, which {name} needs; {others} "
            "can do without"
        )
    requests = workload.requests if isinstance(workload, ClosedLoopWorkload) else tuple(workload.start().arrivals())
    if not requests:
        raise WorkloadError(f"{workload.name} has no requests")
    block, notes = block_size(requests) if format.hashes else (0, [_WORDS_NOTE])
    text = "".join(f"{line}\n" for line in format.lines(requests, timed, block))
    use = _use(format, workload, requests, block)
    return Export(text, len(requests), (*_notes(requests), *notes), use)


def export_format(name: str) -> ExportFormat:
    """Raises WorkloadError that lists the formats there are."""
    if name not in FORMATS:
        raise WorkloadError(f"no export format {name!r}; there are {', '.join(FORMATS)}")
    return FORMATS[name]


def milliseconds(seconds: float) -> int | float:
    """What gives `seconds` back, to the last bit or the one before it, divided by 1000: whole where that does."""
    product = seconds * 1000
    for number in (round(product), product, nextafter(product, inf), nextafter(product, -inf)):
        if number / 1000 == seconds:
            return number
    return product


def block_size(requests: Items[Arrival]) -> tuple[int, list[str]]:
    """The largest size of block with which the prompts share what they share, and a note where it is not the usual
    one or even the smallest is too large."""
    shared = _shared(request.prompt for request in requests)
    for size in (BLOCK, *SMALLER):
        written = _shared(_as_blocks(requests, size))
        if written == shared:
            break
    notes = [] if size == BLOCK else [f"a hash id for each {size} tokens, not {BLOCK}: prompts share that little"]
    if written != shared:
        notes.append(
            f"prompts share {sum(shared):,} tokens of beginnings seen before, and {sum(written):,} in blocks of {size}"
        )
    return size, notes


def _shared(prompts: Iterable[Prompt]) -> list[int]:
    tree = PrefixTree()
    return [tree.add(prompt).tokens for prompt in prompts]


def _as_blocks(requests: Items[Arrival], size: int) -> Iterator[Prompt]:
    ids = BlockIds(size)
    for request in requests:
        tokens = request.prompt_tokens
        yield tuple((id, min(size, tokens - size * place)) for place, id in enumerate(ids.of(request.prompt)))


def _mooncake(requests: Items[Arrival], timed: bool, block: int) -> Iterator[str]:
    ids = BlockIds(block)
    for request in requests:
        told = {
            "input_length": request.prompt_tokens, "output_length": request.output, "hash_ids": ids.of(request.prompt),
        }
        yield json.dumps({"timestamp": milliseconds(request.time), **told} if timed else told)


def _vllm_bench(requests: Items[Arrival], timed: bool, block: int) -> Iterator[str]:
    for request in requests:
        yield json.dumps({"prompt": text_of(request.prompt), "output_tokens": request.output})


def _notes(requests: Items[Arrival]) -> Iterator[str]:
    early = sum(request.output < request.max_tokens for request in requests)
    if early:
        yield f"{early} outputs end before max_tokens: what is written is the true length, to be asked for as such"
    if len({request.priority for request in requests}) > 1:
        yield "priorities are not written: the format has none"


def _use(format: ExportFormat, workload: Workload, requests: Items[Arrival], block: int) -> str:
    if isinstance(workload, ClosedLoopWorkload):
        return format.use_untimed.format(count=len(requests), clients=workload.clients, block=block)
    span = requests[-1].time - requests[0].time
    rate = f"{len(requests) / span:.6g}" if span > 0 else "inf"
    return format.use.format(count=len(requests), rate=rate, block=block)


_WORDS_NOTE = "prompts are words that most tokenizers make one token each: the results say how long they really were"
_TIMED_TRACE = (
    "vllm bench serve --dataset-name timed_trace --dataset-path FILE --num-prompts {count} --no-oversample "
    "--self-timed --timed-trace-sec-multiplier 0.001 --timed-trace-chunk-hash-size {block} --ignore-eos --save-result "
    "--save-detailed"
)
_AIPERF = (
    "aiperf profile --input-file FILE --custom-dataset-type mooncake_trace --isl-block-size {block} --streaming "
    "--extra-inputs ignore_eos:true "
)
_CUSTOM = (
    "vllm bench serve --dataset-name custom --dataset-path FILE --num-prompts {count} --custom-output-len -1 "
    "--skip-chat-template --disable-shuffle --no-oversample --ignore-eos --save-result --save-detailed "
)
FORMATS = {
    format.name: format for format in (
        ExportFormat("mooncake", "Mooncake JSONL, which arcsim reads as well", True, True, _mooncake, _TIMED_TRACE),
        ExportFormat(
            "aiperf", "AIPerf's mooncake_trace dataset", False, True, _mooncake, _AIPERF + "--fixed-schedule",
            _AIPERF + "--concurrency {clients} --request-count {count}",
        ),
        ExportFormat(
            "vllm-bench", "the custom dataset of `vllm bench serve`: prompts as text, no times", False, False,
            _vllm_bench, _CUSTOM + "--request-rate {rate}", _CUSTOM + "--max-concurrency {clients}",
        ),
    )
}
