"""Records of a real vLLM that served requests on a clock: the same decisions at the same requests."""

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from ..engine.stepper import Stepper
from ..policies.base import EmulatedSample, EngineConfig, Gauges, Sequence, Step
from ..policies.vllm import Vllm
from ..policies.vllm_options import VllmOptions
from .frame import Facts, Frame

COMPARED = ("running", "waiting", "preempted", "scheduled")
ORDERED = ("scheduled",)
OPTIONS = ("async_scheduling", "enable_prefix_caching")


def replay_record(trace: Mapping[str, Any]) -> Iterator[Frame]:
    """A frame a step: requests come in when the record says that they were added, before the step that started then.

    Times are seconds. The record counts the null block. Its ids in steps have a suffix after a dash, and those of
    preempted ones are a set.
    """
    run = Record(trace)
    for number, recorded in enumerate(trace["steps"]):
        expected = {name: recorded[name] for name in COMPARED} | {
            "preempted": sorted(_plain(id) for id in recorded["preempted"]),
            "scheduled": {_plain(id): row for id, row in recorded["scheduled"].items()},
        }
        found = run.step(recorded["t_start"])
        yield Frame(number, expected, found, f"running: {found['running']}\nwaiting: {found['waiting']}", ORDERED)
    outputs = {request["id"]: len(request["token_times"]) for request in trace["requests"]}
    yield Frame(None, {"outputs": outputs}, {"outputs": run.outputs()}, "")


class Record:
    """Drives the policy through the steps of a record. `gauges`: after the latest commit."""

    def __init__(self, trace: Mapping[str, Any]) -> None:
        config = trace["config"]
        engine = EngineConfig(
            block_size=config["block_size"], num_blocks=config["num_gpu_blocks"], max_num_seqs=config["max_num_seqs"],
            max_num_batched_tokens=config["max_num_batched_tokens"], max_model_len=config["max_model_len"],
        )
        self.policy = Vllm(engine, VllmOptions.model_validate({name: config[name] for name in OPTIONS}))
        self.gauges = Gauges(0, 0)
        self._stepper = Stepper(self.policy)
        self._to_come = deque(sorted(trace["requests"], key=lambda request: request["added"]))
        self._sequences: dict[str, Sequence] = {}
        self._flying: deque[Step] = deque()

    def step(self, start: float) -> Facts:
        while self._to_come and self._to_come[0]["added"] <= start:
            self._arrive(self._to_come.popleft())
        step = self._stepper.schedule(start).step
        rows = {chunk.sequence: chunk for forward in step.forwards for chunk in forward.all_chunks()}
        found = {
            "running": step.gauges.running, "waiting": step.gauges.waiting,
            "preempted": sorted(sequence.id for sequence, _ in step.preempted),
            "scheduled": {s.id: [rows[s].length, rows[s].start] for s in self.policy.running if s in rows},
        }
        self._flying.append(step)
        if len(self._flying) > self.policy.overlap:
            landed = self._flying.popleft()
            self.gauges = self._stepper.commit(landed, EmulatedSample(landed.sampling)).gauges
        return found

    def _arrive(self, request: Mapping[str, Any]) -> None:
        prompt = range(len(self._sequences) << 20, (len(self._sequences) << 20) + request["prompt"])
        sequence = Sequence(request["id"], prompt, request["output"], arrival=request["added"])
        self._sequences[request["id"]] = sequence
        self._stepper.arrive(sequence, request["output"])

    def outputs(self) -> dict[str, int]:
        return {id: sequence.generated for id, sequence in self._sequences.items()}


def _plain(id: str) -> str:
    return id.rpartition("-")[0]
