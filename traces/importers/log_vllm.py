"""vLLM's log lines: 2023, v0, v1, and one an iteration."""

import re
from collections.abc import Sequence

from .clock import Clock
from .record import COUNT, NUMBER, Record, Stateless, StepFacts, count, rate, share

CLOCK = re.compile(r"(?:\d{4}-)?\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d{1,9})?", re.ASCII)
GAUGES = re.compile(
    r"(?:^|(?:(?<!\d):|[\])>|-]) ?|\"(?=Engine \d))(?:Engine (?P<engine>\d{1,9}): )?"
    rf"(?:Avg prompt throughput: (?P<prompt>{NUMBER}) tokens/s, Avg generation throughput: (?P<made>{NUMBER}) tokens/s"
    rf"|Throughput: (?P<all>{NUMBER}) tokens/s), "
    rf"(?:Max iteration time: {NUMBER} ms, )?(?:Avg time/tok: ?{NUMBER} ms, )?"
    rf"Running: (?P<running>{COUNT}) reqs, (?:Swapped: (?P<swapped>{COUNT}) reqs, )?"
    rf"(?:Waiting|(?P<old>Pending)): (?P<waiting>{COUNT}) reqs"
    rf"(?:, Deferred: (?P<deferred>{COUNT}) reqs)?(?:, Preemptions: (?P<preempted>{COUNT})(?=,))?"
    rf"(?:, Corrupted: {COUNT} reqs)?"
    rf"(?:, (?:GPU|CPU) KV cache usage: (?P<usage>{NUMBER})%)?(?:, CPU KV cache usage: {NUMBER}%)?"
    rf"(?:, Prefix cache hit rate: (?P<hits>{NUMBER})%)?", re.ASCII,
)
ITERATION = re.compile(
    rf"Iteration\(\d+\): (?P<prefills>{COUNT}) context requests, (?P<prompt>{COUNT}) context tokens, "
    rf"(?P<decodes>{COUNT}) generation requests, (?P<made>{COUNT}) generation tokens, "
    rf"iteration elapsed time: (?P<ms>{NUMBER}) ms(?:, (?:GPU |CPU )?KV cache usage: (?P<usage>{NUMBER})%)?", re.ASCII,
)
DUMMY = re.compile(r"Iteration\(\d+\).*\(dummy\)|\(dummy\).*Iteration\(\d+\)", re.ASCII)
PREEMPTED = re.compile(
    r"is preempted by PreemptionMode\.\w+ .*total_num_cumulative_preemption=(?P<all>\d{1,9})(?=\s|$)", re.ASCII,
)
RANK = re.compile(r"\(EngineCore_DP(\d{1,9})\b", re.ASCII)
ALONE = "0"
"""The engine of lines that name none, though their beginning is whole: it is the only one."""
HEADER = re.compile(r"(?:\.py:\d+\]|- [A-Z]+ -)$", re.ASCII)


class VllmReader(Stateless):
    """Counts are instantaneous, throughputs those of the window since the logger's last tick."""

    def __init__(self, clock: Clock) -> None:
        """Its lines stand for themselves."""

    def read(self, line: str) -> Sequence[Record] | None:
        if "hroughput: " in line:
            return [_gauges(match, line) for match in GAUGES.finditer(line)] or None
        if "Iteration(" in line:
            return [] if DUMMY.search(line) else [_iteration(match, line) for match in ITERATION.finditer(line)] or None
        if "PreemptionMode" in line and (match := PREEMPTED.search(line)):
            return [Record("preempt", _clock(line, match.start()), preemptions=int(match["all"]))]
        return None


def _clock(line: str, place: int) -> str | None:
    """The one nearest before `place`: what stands further left was put there by a container or a collector."""
    stamps = CLOCK.findall(line, 0, place)
    return stamps[-1] if stamps else None


def _gauges(match: re.Match[str], line: str) -> Record:
    engine, prompt, made, total, running, swapped, old, waiting, deferred, preempted, usage, hits = match.groups()
    alone = old or HEADER.search(line, 0, match.start() + 1)
    return Record(
        "interval", _clock(line, match.start() + 1), int(running), int(waiting), swapped=count(swapped),
        deferred=count(deferred), rank=count(engine or (ALONE if alone else None)), prompt_throughput=rate(prompt),
        generation_throughput=rate(made or total), kv_usage=share(usage), hit_rate=share(hits),
        preempted=count(preempted),
    )


def _iteration(match: re.Match[str], line: str) -> Record:
    prefills, decodes, prompt = int(match["prefills"]), int(match["decodes"]), int(match["prompt"])
    stamp = _clock(line, match.start())
    found = RANK.findall(line, 0, match.start()) or ([ALONE] if stamp else [None])
    counts = {
        "running": prefills + decodes, "forward_width": prefills + decodes, "prefill_seqs": prefills,
        "decode_seqs": decodes, "prefill_tokens": prompt, "padded_tokens": prompt, "decode_tokens": int(match["made"]),
    }
    return Record(
        "iteration", stamp, prefills + decodes, rank=count(found[-1]),
        kv_usage=share(match["usage"]), step=StepFacts(float(match["ms"]) / 1e3, counts),
    )
