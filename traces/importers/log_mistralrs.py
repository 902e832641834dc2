"""mistral.rs's log lines: one an interval, and the old debug line of each step."""

import re
from collections.abc import Sequence

from .clock import Clock
from .record import COUNT, NUMBER, Record, Stateless, StepFacts, rate, share

CLOCK = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)?", re.ASCII)
INTERVAL = re.compile(
    rf"Throughput \(T/s\) (?P<rate>{NUMBER})(?:, Prefix cache hitrate (?P<hits>{NUMBER})%)?"
    rf"(?:, (?:(?!Throughput)[^,]){{1,80}}){{0,6}}?"
    rf", (?P<running>{COUNT}) running, (?P<waiting>{COUNT}) waiting\b", re.ASCII,
)
STEP = re.compile(r"Prompt\[([\d, ]*)\] Completion\[([\d, ]*)\] - (\d{1,9})ms\b", re.ASCII)


class MistralrsReader(Stateless):
    """Lines come every 5 seconds, and not where no token was made: silence is not zero."""

    def __init__(self, clock: Clock) -> None:
        """Its lines stand for themselves."""

    def read(self, line: str) -> Sequence[Record] | None:
        if "Throughput (T/s)" in line:
            return [_interval(match, line) for match in INTERVAL.finditer(line)] or None
        if "Prompt[" in line:
            return [_step(match, line) for match in STEP.finditer(line)] or None
        return None


def _clock(line: str, place: int) -> str | None:
    stamps = CLOCK.findall(line, 0, place)
    return stamps[-1] if stamps else None


def _interval(match: re.Match[str], line: str) -> Record:
    return Record(
        "interval", _clock(line, match.start()), int(match["running"]), int(match["waiting"]),
        generation_throughput=rate(match["rate"]), hit_rate=share(match["hits"]),
    )


def _step(match: re.Match[str], line: str) -> Record:
    """The line lists the lengths of the sequences that were prefilled and of those that decoded."""
    prompts, decodes = (_lengths(match[group]) for group in (1, 2))
    width, tokens = len(prompts) + len(decodes), min(sum(prompts), 2**31 - 1)
    counts = {
        "running": width, "forward_width": width, "prefill_seqs": len(prompts), "decode_seqs": len(decodes),
        "prefill_tokens": tokens, "padded_tokens": tokens, "decode_tokens": len(decodes),
    }
    return Record("iteration", _clock(line, match.start()), width, step=StepFacts(int(match[3]) / 1e3, counts))


def _lengths(text: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d{1,9}", text, re.ASCII)]
