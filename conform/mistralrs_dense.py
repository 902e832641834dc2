"""mistral.rs's golden traces of the dense scheduler: the lengths of what ran as prompt and as completion."""

from collections.abc import Iterator, Mapping, Sequence as Ids
from typing import Any

from ..engine.stepper import Stepper
from ..policies.base import EngineConfig, Sequence, Step
from ..policies.length_buckets import Bucket, shortest
from ..policies.mistralrs_dense import MistralrsDense, MistralrsDenseOptions
from .frame import Facts, Frame


def replay(trace: Mapping[str, Any]) -> Iterator[Frame]:
    """See `Format`. The engine left exact ties of priority to a hash map: there the recorded choice is followed."""
    run = _Run(trace)
    for number, expected in enumerate(trace["steps"], 1):
        yield run.step(number, expected)
    yield Frame(None, {"steps": len(trace["steps"])}, {"steps": run.number}, run.state())


def policy_of(trace: Mapping[str, Any]) -> MistralrsDense:
    """The policy as a trace describes it."""
    engine = EngineConfig(max_num_seqs=trace["config"]["max_seqs"])
    return MistralrsDense(engine, MistralrsDenseOptions.model_validate({"version": trace["version"]}))


class _Run:
    """Steps are numbered from 1, and a request is there from its `arrival_step` on."""

    def __init__(self, trace: Mapping[str, Any]) -> None:
        self.policy = policy_of(trace)
        self.policy.chooser.tie_break = self._as_recorded
        self.number = 0
        self._stepper = Stepper(self.policy)
        self._requests = list(trace["requests"])
        self._recorded: list[int] = []

    def step(self, number: int, expected: Facts) -> Frame:
        """Arrivals, schedule, and the output of this step."""
        self.number = number
        self._arrive()
        lengths = {name: sorted(values) for name, values in expected.items()}
        self._recorded = sorted(length for values in lengths.values() for length in values)
        found: Facts = {name: [] for name in lengths}
        state = self.state()
        if self.policy.running or self.policy.waiting:
            step = self._stepper.schedule(float(number)).step
            found, state = _ran(step), self.state()
            self._stepper.commit(step, step.emulated())
        return Frame(number, lengths, found, state)

    def _arrive(self) -> None:
        for request in self._requests:
            if request["arrival_step"] == self.number:
                sequence = Sequence(request["id"], range(request["prompt_len"]), request["output_len"])
                self._stepper.arrive(sequence, request["output_len"])

    def _as_recorded(self, tied: Ids[Bucket]) -> Bucket:
        matching = [one for one in tied if [one.length + 1] * len(one.members) == self._recorded]
        return matching[0] if matching else shortest(tied)

    def state(self) -> str:
        """The engine's lists after scheduling, a line each."""
        return "\n".join(f"{name}: {', '.join(map(repr, queue)) or 'nobody'}" for name, queue in self.policy.lists())


def _ran(step: Step) -> Facts:
    """Lengths after the step: each sequence has gained its token."""
    chunks = [chunk for forward in step.forwards for chunk in forward.chunks]
    return {
        f"{kind}_lens_after": sorted(chunk.end + 1 for chunk in chunks if chunk.decode == decode)
        for kind, decode in (("prompt", False), ("completion", True))
    }
