"""SGLang's golden traces: the scheduler's loop driven iteration by iteration, normal or with overlap."""

import re
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from ..engine.recorder import Recorder
from ..engine.span import Span
from ..engine.stepper import Stepper
from ..engine.times import SECOND
from ..policies.base import EngineConfig, EngineFault, Sequence, Step
from ..policies.sglang import Sglang
from ..policies.sglang_options import SglangOptions
from ..policies.sglang_request import Request
from ..policies.sglang_rows import Launch
from ..traces.log_sglang import lines
from .frame import Facts, Frame

EOS = 2
"""The token that ends an output before max_new_tokens."""

LIVELOCK = 50
"""More iterations in a row than this that launch nothing, with requests waiting, end a recording."""

ARRIVAL, RETRACTION = 1, 2
"""Places of log lines within one moment: before them are those of the output that the iteration before it left."""

ERROR = "RuntimeError: "

OWN_NAME = {
    "max_total_tokens", "page_size", "max_running_requests", "context_len", "overlap", "new_token_ratio",
}
"""Settings of a trace that are no options of the policy's under the same name."""


def replay(trace: Mapping[str, Any]) -> Iterator[Frame]:
    """See `Format`. The strict option is on: the traces are of the engine with its faults."""
    run = _Run(trace)
    for number, expected in enumerate(trace["steps"]):
        frame = run.step(number, expected)
        yield frame if frame is not None else Frame(number, expected, {"error": run.error}, run.state())
        if run.stop is not None:
            break
    if run.stop is None:
        run.fails(len(trace["steps"]))
    names = ("stop", "error", "result_per_request", "logs")
    ended = {name: trace[name] for name in names} | {"steps": len(trace["steps"])}
    yield Frame(None, ended, run.ended(), run.state())


def policy_of(config: Mapping[str, Any]) -> Sglang:
    """The policy as a trace's `config` describes it."""
    engine = EngineConfig(
        block_size=config["page_size"], num_blocks=config["max_total_tokens"] // config["page_size"],
        max_num_seqs=config["max_running_requests"], max_model_len=config["context_len"],
    )
    options = {name: value for name, value in config.items() if name not in OWN_NAME}
    options |= {"disable_overlap_schedule": not config["overlap"], "strict_sglang": True}
    return Sglang(engine, SglangOptions(**options))


class _Run:
    """Drives the policy as the recorder of the traces drove the scheduler, and says what it did in its words."""

    def __init__(self, trace: Mapping[str, Any]) -> None:
        self.policy = policy_of(trace["config"])
        self.stop: str | None = None
        self.error: str | None = None
        self._page_size = trace["config"]["page_size"]
        self._stepper = Stepper(self.policy)
        self._recorder = Recorder(self.policy.cache.usable)
        self._facts = {request["id"]: (place, request) for place, request in enumerate(trace["requests"])}
        self._to_come = deque(sorted(trace["requests"], key=lambda request: request["arrival_step"]))
        self._sequences: dict[str, Sequence] = {}
        self._requests: dict[str, Request] = {}
        self._outputs: dict[str, int] = {}
        self._finish: dict[str, str] = {}
        self._flying: deque[tuple[Step, int]] = deque()
        self._refusals: list[tuple[float, int, str]] = []
        self._empty = 0

    def step(self, number: int, expected: Facts) -> Frame | None:
        """Arrivals, schedule, then the output of this iteration, or of the one before with overlap. None: the engine
        fails."""
        arrived = self._arrive(number)
        behind = bool(self._flying) and not self._flying[-1][0].empty
        step = self._schedule(number)
        if step is None:
            return None
        found = {"step": number, "arrived": arrived} | self._scheduled(step) | self._snapshot()
        state = self.state()
        self._flying.append((step, number))
        finished = self._commit() if len(self._flying) > self.policy.overlap else []
        found |= self._processed(finished)
        self._watch(step, idle=step.empty and not (behind and self.policy.overlap))
        return Frame(number, expected, found, state)

    def fails(self, number: int) -> None:
        """The iteration after the last one recorded: the engine fails in it, or the trace was cut."""
        self._arrive(number)
        if self._schedule(number) is not None:
            self.stop = "goes on"

    def _arrive(self, number: int) -> list[str]:
        arrived = []
        while self._to_come and self._to_come[0]["arrival_step"] <= number:
            request = self._to_come.popleft()
            self._tell_refusal(request["id"], len(request["prompt_token_ids"]), number)
            sequence = Sequence(
                request["id"], request["prompt_token_ids"], request["max_new_tokens"],
                output_base=self._token(request, 0),
            )
            sequence.ignore_eos = request["ignore_eos"]
            output = request["max_new_tokens"] if sequence.ignore_eos else request["output_len"]
            reason = self._stepper.arrive(sequence, output)
            self._recorder.arrive(sequence, number * SECOND, reason)
            self._sequences[sequence.id] = sequence
            if reason is None:
                self._requests[sequence.id] = self.policy.requests[sequence]
            arrived.append(sequence.id)
        return arrived

    def _tell_refusal(self, name: str, length: int, number: int) -> None:
        """The engine logs whose prompt it does not serve, before it asks whether there is room in the queue."""
        longest = self.policy.door.longest_prompt
        if length >= longest:
            self._refusals.append((float(number), ARRIVAL, (
                f"Input length ({length} tokens) exceeds the maximum allowed length ({longest} tokens). Use a shorter "
                f"input or enable --allow-auto-truncate., self.rid={name!r}"
            )))

    def _token(self, request: Mapping[str, Any], place: int) -> int:
        """The traces' output_token_rule, but for the EOS."""
        return 1_000_000 + self._facts[request["id"]][0] * 100_000 + place

    def _schedule(self, number: int) -> Step | None:
        try:
            decision = self._stepper.schedule(float(number))
        except EngineFault as fault:
            self.stop, self.error = "engine_exception", f"{ERROR}{fault}"
            return None
        self._recorder.decide(decision, number * SECOND)
        return decision.step

    def _scheduled(self, step: Step) -> dict[str, Any]:
        """What was launched."""
        if step.empty:
            found = {"kind": "idle", "batch": [], "extend_tokens": {}, "cached_tokens": {}}
        elif self.policy.flying[-1].prefills:
            found = self._prefill(step, self.policy.flying[-1])
        else:
            rows = self.policy.flying[-1].rows
            lengths = {request.sequence.id: request.kv for request in rows}
            found = {
                "kind": "decode", "batch": list(lengths), "extend_tokens": {}, "cached_tokens": {}, "seq_lens": lengths
            }
        return found | {"retracted": [sequence.id for sequence, _ in step.preempted], "preempted": []}

    def _prefill(self, step: Step, launch: Launch) -> dict[str, Any]:
        chunks = {request.sequence.id: chunk for request, chunk in launch.chunks}
        decoding = list(chunks)[launch.prefills:]
        log = {
            "new_seq": launch.prefills, "new_token": launch.logged, "cached_token": step.prefix_hits,
            "running_req": step.gauges.running, "queue_req": step.gauges.waiting, "pending_token": launch.pending,
        }
        found = {
            "kind": "mixed" if decoding else "prefill", "batch": list(chunks), "log": log,
            "extend_tokens": {name: chunk.length for name, chunk in chunks.items()},
            "cached_tokens": {name: chunk.start for name, chunk in chunks.items()},
            "seq_lens": {name: chunk.end for name, chunk in chunks.items()},
        }
        return found | ({"decoding": decoding} if decoding else {})

    def _snapshot(self) -> dict[str, Any]:
        """Right after scheduling."""
        policy, cache = self.policy, self.policy.cache
        return {
            "chunked_req": None if policy.chunked is None else policy.chunked.sequence.id,
            "running": [request.sequence.id for request in policy.rows.members], "batch_is_full": policy.rows.full,
            "waiting": [sequence.id for sequence in policy.waiting], "new_token_ratio": policy.ratio.current,
            "available_tokens": cache.available, "evictable_tokens": cache.evictable,
            "protected_tokens": cache.protected, "free_req_slots": policy.free_seats,
        }

    def _commit(self) -> list[Request]:
        """The requests that finished with it, in the order of its rows."""
        step, number = self._flying.popleft()
        rows = [] if step.empty else self.policy.flying[0].rows
        running = [request for request in rows if not request.finished]
        sampled = {request.sequence: [self._sample(request.sequence)] for request in rows}
        committed = self._stepper.commit(step, sampled)
        end = (number + 1) * SECOND + (SECOND // 2 if self.policy.overlap else 0)
        self._recorder.commit(step, Span(number * SECOND, end, 0.0, 0.0), committed)
        finished = [request for request in running if request.finished]
        for request in finished:
            self._note_end(request, sampled[request.sequence][0])
        return finished

    def _sample(self, sequence: Sequence) -> int:
        request, place = self._facts[sequence.id][1], sequence.generated
        ends = place == request["output_len"] - 1 and request["output_len"] < request["max_new_tokens"]
        return EOS if ends else self._token(request, place)

    def _note_end(self, request: Request, token: int) -> None:
        """A member of the decode batch may tick on until it is filtered, so its output is read here."""
        sequence = request.sequence
        self._outputs[sequence.id] = sequence.generated
        matched = token == EOS and not sequence.ignore_eos and sequence.generated <= sequence.max_tokens
        why = "FINISH_ABORT" if request.refused else "FINISH_MATCHED_TOKEN" if matched else "FINISH_LENGTH"
        self._finish[sequence.id] = why

    def _processed(self, finished: list[Request]) -> dict[str, Any]:
        policy, cache = self.policy, self.policy.cache
        return {
            "finished": [request.sequence.id for request in finished if not request.refused],
            "aborted": [request.sequence.id for request in finished if request.refused],
            "end_available_tokens": cache.available, "end_evictable_tokens": cache.evictable,
            "end_running": [request.sequence.id for request in policy.rows.members if not request.finished],
        }

    def _watch(self, step: Step, *, idle: bool) -> None:
        """`idle`: nothing was launched, and nothing was in flight."""
        if idle:
            while self._flying:
                self._commit()
            self._stepper.idle()
        self._empty = self._empty + 1 if step.empty and self.policy.waiting else 0
        if self._empty > LIVELOCK:
            self.stop = f"livelock: {LIVELOCK} consecutive empty iterations with requests waiting"
        elif step.empty and not self._to_come and not self._stepper.live:
            self.stop = "drained"

    def ended(self) -> dict[str, Any]:
        """The run as a whole, once: its table is given away with the log."""
        steps = len(self._recorder.steps) + len(self._flying)
        return {
            "stop": self.stop, "error": self.error, "logs": self._logs(), "steps": steps,
            "result_per_request": {name: self._result(sequence) for name, sequence in self._sequences.items()},
        }

    def _logs(self) -> list[str]:
        """All that the engine prints, in its order; where it fails, that comes last."""
        meta = {"config": {"engine": {"block_size": self._page_size}}, "events": self._recorder.events}
        found = lines(self._recorder.run(meta), graph="cpu graph")
        timed = [(line.time, RETRACTION if line.kind == "retract" else 0, line.text) for line in found]
        texts = [text for _, _, text in sorted([*timed, *self._refusals], key=lambda line: line[:2])]
        texts = [re.sub(r"throughput \(token/s\): [0-9.]+", "throughput (token/s): *", text) for text in texts]
        return texts + ([] if self.error is None else [self.error.removeprefix(ERROR)])

    def _result(self, sequence: Sequence) -> dict[str, Any]:
        name, request = sequence.id, self._requests.get(sequence.id)
        return {
            "max_new_tokens_effective": sequence.max_tokens,
            "output_len_actual": self._outputs.get(name, sequence.generated),
            "cached_tokens_first_prefill": (request.hit or 0) if request is not None else 0,
            "retraction_count": sequence.preemptions, "finish": self._finish.get(name),
        }

    def state(self) -> str:
        """The queues after scheduling, a line each."""
        policy, cache = self.policy, self.policy.cache
        memory = f"tokens: {cache.available} available, {cache.evictable} evictable, {cache.protected} protected"
        return "\n".join([
            _queue("running", [request.sequence for request in policy.rows.members]),
            _queue("waiting", policy.waiting), memory,
        ])


def _queue(name: str, sequences: list[Sequence]) -> str:
    told = [f"{s.id} ({s.num_tokens} tokens, {len(s.block_table)} pages)" for s in sequences]
    return f"{name}: {', '.join(told) or 'nobody'}"
