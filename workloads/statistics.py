"""A workload in numbers."""

from collections import deque
from collections.abc import Sequence as Items
from dataclasses import dataclass

import numpy as np

from .arrival import Arrival
from .prefix_tree import PrefixTree
from .workload import Session, Workload


@dataclass(frozen=True, slots=True)
class LengthStatistics:
    """Of the lengths of prompts or outputs, in tokens; quantiles are interpolated between neighbours."""

    total: int
    mean: float
    p50: float
    p90: float
    p99: float
    max: int
    min: int


@dataclass(frozen=True, slots=True)
class PrefixReuse:
    """What an endless prefix cache would hit of the prompts, as shares from 0 to 1; generated tokens are not cached.

    `tokens`: of the prompt tokens, to the token. `pieces`: of the pieces (hash blocks), counted whole.
    `blocks`: of the prompt tokens, in whole blocks of `block_size` tokens.
    """

    tokens: float
    pieces: float
    blocks: float
    block_size: int


@dataclass(frozen=True, slots=True)
class WorkloadStatistics:
    """`span` is from the first to the last arrival in seconds, `mean_rate` requests over span (per second).

    `interarrival_cv` is the standard deviation over the mean of the gaps. `span` and what follows from it are None
    for a closed loop; the last two also where all arrive at once.
    """

    name: str
    count: int
    span: float | None
    mean_rate: float | None
    interarrival_cv: float | None
    prompt: LengthStatistics
    output: LengthStatistics
    total_tokens: int
    reuse: PrefixReuse


def describe(workload: Workload, block_size: int = 16) -> WorkloadStatistics:
    """Goes through the whole workload once. Raises ValueError for an empty one."""
    session = workload.start()
    known = list(session.arrivals())
    requests = known + _answers(session, known)
    if not requests:
        raise ValueError(f"workload {workload.name} has no requests")
    span, rate, variation = _pace(known) if len(known) == len(requests) else (None, None, None)
    prompt = _lengths([request.prompt_tokens for request in requests])
    output = _lengths([request.output for request in requests])
    return WorkloadStatistics(
        workload.name, len(requests), span, rate, variation, prompt, output, prompt.total + output.total,
        _reuse(requests, prompt.total, block_size),
    )


def _answers(session: Session, known: Items[Arrival]) -> list[Arrival]:
    """The requests of a closed loop that come when others end, in the order of ends."""
    answers = []
    running = deque(known)
    while running:
        answer = session.on_finish(running.popleft().id, 0.0)
        if answer is not None:
            answers.append(answer)
            running.append(answer)
    return answers


def _pace(requests: Items[Arrival]) -> tuple[float, float | None, float | None]:
    times = np.array([request.time for request in requests])
    span = float(times[-1] - times[0])
    if span <= 0:
        return 0.0, None, None
    gaps = np.diff(times)
    return span, len(times) / span, float(gaps.std() / gaps.mean())


def _lengths(lengths: Items[int]) -> LengthStatistics:
    p50, p90, p99 = (float(value) for value in np.percentile(lengths, [50, 90, 99]))
    total = sum(lengths)
    return LengthStatistics(total, total / len(lengths), p50, p90, p99, max(lengths), min(lengths))


def _reuse(requests: Items[Arrival], prompt_tokens: int, block_size: int) -> PrefixReuse:
    tree = PrefixTree()
    hits = [tree.add(request.prompt) for request in requests]
    pieces = sum(len(request.prompt) for request in requests)
    blocks = sum(hit.tokens // block_size for hit in hits) * block_size
    return PrefixReuse(
        sum(hit.tokens for hit in hits) / prompt_tokens, sum(hit.pieces for hit in hits) / pieces,
        blocks / prompt_tokens, block_size,
    )
