"""vLLM's golden traces: the scheduler driven step by step, synchronously or one step ahead."""

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from ..engine.stepper import Stepper
from ..policies.base import EmulatedSample, EngineConfig, Sequence, Step
from ..policies.vllm import Vllm
from ..policies.vllm_options import VllmOptions
from .frame import Facts, Frame
from .vllm_record import replay_record

STALLED_AFTER = 12
"""Steps in a row in which nothing happens, with work left and nothing to come."""

ORDERED = ("scheduled", "num_computed_tokens", "cached_tokens", "new_blocks")

SAME_NAME = (
    "async_scheduling", "enable_chunked_prefill", "enable_prefix_caching", "long_prefill_token_threshold",
    "scheduler_reserve_full_isl", "watermark",
)
"""Options that arcsim and the traces call alike."""


def replay(trace: Mapping[str, Any]) -> Iterator[Frame]:
    """See `Format`. The strict option is on: the traces are of the bare scheduler."""
    if "device" in trace:
        yield from replay_record(trace)
        return
    run = _Run(trace)
    steps = trace["steps"]
    for number, expected in enumerate(steps):
        yield run.step(number, expected)
        if run.outcome is not None and number + 1 < len(steps):
            break
    ended = {name: trace[name] for name in ("outcome", "unfinished")} | {"steps": len(steps)}
    yield Frame(None, ended, run.ended(), run.state())


def policy_of(config: Mapping[str, Any]) -> Vllm:
    """The policy as a trace's `config` describes it. The trace counts usable blocks, the policy the null block too."""
    engine = EngineConfig(
        block_size=config["block_size"], num_blocks=config["num_gpu_blocks"] + 1, max_num_seqs=config["max_num_seqs"],
        max_num_batched_tokens=config["max_num_batched_tokens"], max_model_len=config["max_model_len"],
    )
    options = {name: config[name] for name in SAME_NAME} | {"scheduling_policy": config["policy"], "strict_vllm": True}
    return Vllm(engine, VllmOptions.model_validate(options))


class _Run:
    """Drives the policy as the recorder of the traces drove the scheduler, and says what it did in its words."""

    def __init__(self, trace: Mapping[str, Any]) -> None:
        self.policy = policy_of(trace["config"])
        self.outcome: str | None = None
        self._stepper = Stepper(self.policy)
        self._to_come = list(trace["requests"])
        self._aborts = list(trace["aborts"])
        self._sequences: dict[str, Sequence] = {}
        self._flying: deque[tuple[Step, list[str]]] = deque()  # and the ids of its rows, in the engine's order
        self._prefix: dict[str, list[int]] = {}
        self._idle = self._steps = 0

    def step(self, number: int, expected: Facts) -> Frame:
        """Arrivals, aborts, schedule, then the output of this step, or of the one before where it is asynchronous."""
        self._steps += 1
        arrived, aborted = self._arrive(number), self._abort(number)
        step = self._stepper.schedule(float(number)).step
        found: dict[str, Any] = {"step": number, "arrived": arrived} | self._scheduled(step)
        if aborted:
            found["aborted"] = aborted
        state = self.state()
        self._flying.append((step, list(found["scheduled"])))
        committed = self._commit() if len(self._flying) > self.policy.overlap else None
        found |= committed or {"finished": [], "stats": None}
        self._watch(step, bool(found["finished"]))
        return Frame(number, expected, found, state, ORDERED)

    def _arrive(self, number: int) -> list[str]:
        due = [request for request in self._to_come if request["arrival_step"] == number]
        self._to_come = [request for request in self._to_come if request["arrival_step"] != number]
        for request in due:
            output = request["output_len"]
            sequence = self._sequences[request["id"]] = Sequence(
                request["id"], request["prompt_token_ids"], request.get("max_tokens", output),
                arrival=request["arrival_time"], priority=request["priority"],
                output_base=request["output_token_base"],
            )
            self._stepper.arrive(sequence, output)
        return [request["id"] for request in due]

    def _abort(self, number: int) -> list[str]:
        due = [self._sequences[abort["id"]] for abort in self._aborts if abort["step"] == number]
        leaving = [sequence for sequence in due if sequence in self._stepper.live]
        for sequence in leaving:
            self._stepper.abort(sequence)
        return [sequence.id for sequence in leaving]

    def _scheduled(self, step: Step) -> dict[str, Any]:
        """What one call of schedule() decided, in the fields of the trace."""
        policy = self.policy
        chunks = {chunk.sequence: chunk for forward in step.forwards for chunk in forward.all_chunks()}
        rows = [(sequence, chunks[sequence]) for sequence in policy.running if sequence in chunks]
        entered = [*step.admitted, *step.resumed]
        found = {
            "scheduled": {sequence.id: chunk.length for sequence, chunk in rows},
            "new": _ids(step.admitted), "resumed": _ids(step.resumed),
            "preempted": [sequence.id for sequence, _ in step.preempted],
            "num_computed_tokens": {sequence.id: chunk.start for sequence, chunk in rows},
            "cached_tokens": {sequence.id: chunks[sequence].cached for sequence in entered},
            "new_blocks": {s.id: list(step.new_blocks[s]) for s, _ in rows if step.new_blocks.get(s)},
            "running": _ids(policy.running), "waiting": _ids(policy.waiting), "free_blocks": policy.pool.free,
            "sampled": [sequence.id for sequence, chunk in rows if chunk.samples],
        }
        if policy.refused is not None:
            hit = len(policy.blocks.hit(policy.refused)) * policy.pool.block_size
            found["rejected_lookup"] = [[policy.refused.id, hit]]
        if policy.choice.enable_prefix_caching:
            for name, sequences in (("prefix", step.admitted), ("prefix_preempted", step.resumed)):
                for sequence in sequences:
                    self._count(name, sequence.num_tokens, chunks[sequence].cached)
        return found

    def _count(self, name: str, queries: int, hits: int) -> None:
        """Every admission is one look-up of the engine's statistics, reported with the next update."""
        sums = self._prefix.setdefault(name, [0, 0, 0])
        for place, value in enumerate((1, queries, hits)):
            sums[place] += value

    def _commit(self) -> dict[str, Any]:
        """What update_from_output() says of the oldest step in flight."""
        step, rows = self._flying.popleft()
        committed = self._stepper.commit(step, EmulatedSample(step.sampling))
        gauges, usable = committed.gauges, self.policy.pool.usable
        usage = round(1.0 - (usable - gauges.kv_used) / usable, 9)
        stats = {"running": gauges.running, "waiting": gauges.waiting, "kv_cache_usage": usage} | self._prefix
        self._prefix = {}
        return {"finished": sorted(_ids(committed.finished), key=rows.index), "stats": stats}

    def _watch(self, step: Step, finished: bool) -> None:
        moved = not step.empty or step.preempted or finished
        self._idle = 0 if moved or self._to_come else self._idle + 1
        if not self._to_come and not self._stepper.live:
            self.outcome = "completed"
        elif self._idle >= STALLED_AFTER:
            self.outcome = "stalled"

    def ended(self) -> dict[str, Any]:
        """The run as a whole; one that was cut off by the end of the trace ran into the recorder's limit."""
        unfinished = [id for id, sequence in self._sequences.items() if sequence in self._stepper.live]
        unfinished += [request["id"] for request in self._to_come]
        return {"outcome": self.outcome or "max_steps", "unfinished": unfinished, "steps": self._steps}

    def state(self) -> str:
        """The queues after scheduling, a line each."""
        policy = self.policy
        free = f"free blocks: {policy.pool.free} of {policy.pool.usable}"
        return "\n".join([_queue("running", policy.running), _queue("waiting", policy.waiting), free])


def _ids(sequences: Any) -> list[str]:
    return [sequence.id for sequence in sequences]


def _queue(name: str, sequences: Any) -> str:
    told = [f"{s.id} ({s.computed} of {s.num_tokens} tokens, {len(s.block_table)} blocks)" for s in sequences]
    return f"{name}: {', '.join(told) or 'nobody'}"
