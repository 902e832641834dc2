"""mistral.rs's golden traces of the dense scheduler: the lengths of what ran as prompt and as completion."""

from collections.abc import Iterator, Mapping, Sequence as Ids
from typing import Any

from ..engine.stepper import Stepper
from ..policies.base import EngineConfig, Sequence, Step
from ..policies.length_buckets import Bucket, shortest
from ..policies.mistralrs_dense import MistralrsDense, MistralrsDenseOptions
from .frame import Facts, Frame

FIELDS = ("prompt_lens_after", "completion_lens_after")


def replay(trace: Mapping[str, Any]) -> Iterator[Frame]:
    """See `Format`. The engine left exact ties of priority to a hash map: there the recorded choice is followed. A
    recording ends when everybody is served."""
    run = _Run(trace)
    for number, expected in enumerate(trace["steps"], 1):
        yield run.step(number, expected)
    yield Frame(None, {"steps": len(trace["steps"]), "unfinished": []}, run.ended(), run.state())


def policy_of(trace: Mapping[str, Any]) -> MistralrsDense:
    """The policy as a trace describes it."""
    engine = EngineConfig(max_num_seqs=trace["config"]["max_seqs"])
    return MistralrsDense(engine, MistralrsDenseOptions.model_validate({"version": trace["version"]}))


class _Run:
    """Steps are numbered from 1, and a request is there from its `arrival_step` on."""

    def __init__(self, trace: Mapping[str, Any]) -> None:
        self.policy = policy_of(trace)
        self.policy.chooser.tie_break = self._as_recorded
        self._worked = 0
        self._stepper = Stepper(self.policy)
        self._requests = list(trace["requests"])
        self._sequences: dict[str, Sequence] = {}
        self._recorded: list[int] = []

    def step(self, number: int, expected: Facts) -> Frame:
        """Arrivals, schedule, and the output of this step."""
        self._arrive(number)
        lengths = {name: _in_order(values) for name, values in expected.items()}
        lists = [values for values in lengths.values() if isinstance(values, list)]
        self._recorded = _in_order([length for values in lists for length in values])
        found: Facts = {name: [] for name in FIELDS}
        state = self.state()
        if self.policy.running or self.policy.waiting:
            self._worked = number
            step = self._stepper.schedule(float(number)).step
            found, state = _ran(step), self.state()
            self._stepper.commit(step, step.emulated())
        return Frame(number, lengths, found, state)

    def _arrive(self, number: int) -> None:
        for request in self._requests:
            if request["arrival_step"] == number:
                sequence = Sequence(request["id"], range(request["prompt_len"]), request["output_len"])
                self._sequences[sequence.id] = sequence
                self._stepper.arrive(sequence, request["output_len"])

    def ended(self) -> Facts:
        """The last step in which there was anything to do, and who is not served yet."""
        ids = [request["id"] for request in self._requests]
        served = [id for id, sequence in self._sequences.items() if sequence not in self._stepper.live]
        return {"steps": self._worked, "unfinished": [id for id in ids if id not in served]}

    def _as_recorded(self, tied: Ids[Bucket]) -> Bucket:
        matching = [one for one in tied if [one.length + 1] * len(one.members) == self._recorded]
        return matching[0] if matching else shortest(tied)

    def state(self) -> str:
        """The engine's lists after scheduling, a line each."""
        return "\n".join(f"{name}: {', '.join(map(repr, queue)) or 'nobody'}" for name, queue in self.policy.lists())


def _in_order(lengths: Any) -> Any:
    """The engine's log has no order. What is no list of lengths is left as it is, to be found different."""
    return sorted(lengths) if isinstance(lengths, list) and all(isinstance(each, int) for each in lengths) else lengths


def _ran(step: Step) -> Facts:
    """Lengths after the step: each sequence has gained its token."""
    chunks = [chunk for forward in step.forwards for chunk in forward.chunks]
    return {
        name: sorted(chunk.end + 1 for chunk in chunks if chunk.decode == decode)
        for name, decode in zip(FIELDS, (False, True), strict=True)
    }
