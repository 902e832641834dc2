"""A step scheduled and launched before the output of the one ahead of it is committed."""

from collections.abc import Collection, Iterable, Mapping, Sequence as Ids

import pytest

from arcsim.engine.backend import StepResult
from arcsim.engine.loop import Loop
from arcsim.policies.base import Chunk, DecodeBatch, EngineConfig, Forward, Gauges, Options, Policy, Sequence, Step
from arcsim.sim.backend import SimulatedBackend
from arcsim.sim.latency.affine import Affine
from arcsim.traces.run import Run
from arcsim.workloads.arrival import Arrival
from arcsim.workloads.requests import OpenSession


class Ahead(Policy):
    """Runs everybody at every step, one step ahead of the outputs; an output may end without its knowing.

    `standing`: decodes go through a decode batch, else through a chunk each. `preempt_at`: step -> the sequence that
    is preempted in it. A preempted sequence keeps its token in flight only where `delivers_in_flight` says so.
    """

    overlap = True

    def __init__(self, *, standing: bool = False, preempt_at: Mapping[int, str] | None = None) -> None:
        super().__init__(EngineConfig(), Options())
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []
        self.calls: list[str] = []
        self.standing = standing
        self.preempt_at = preempt_at or {}
        self.batch = DecodeBatch()
        self.flying: list[list[Sequence]] = []  # rows of each step in flight
        self.dropped: set[Sequence] = set()
        self.steps = 0

    def add(self, sequence: Sequence) -> str | None:
        self.waiting.append(sequence)
        return None

    def schedule(self, now: float) -> Step:
        self.calls.append(f"schedule {self.steps}")
        preempted = [sequence for sequence in self.running if sequence.id == self.preempt_at.get(self.steps)]
        for sequence in preempted:
            self._preempt(sequence)
        self.steps += 1
        admitted = [] if preempted else self.waiting
        self.waiting = self.waiting if preempted else []
        self.running += admitted
        chunks = [self._row(sequence) for sequence in self.running if self._more(sequence)]
        for sequence in [chunk.sequence for chunk in chunks if chunk.decode] if self.standing else []:
            if sequence not in self.batch:
                self.batch.join(sequence)
        explicit = [chunk for chunk in chunks if chunk.sequence not in self.batch]
        self.flying.append([chunk.sequence for chunk in chunks])
        if not chunks:
            return Step(self._gauges(), preempted=[(sequence, "asked to") for sequence in preempted])
        if self.standing:
            self.batch.launch()
        forward = Forward(explicit, self.batch if self.standing else None)
        fresh, back = ([s for s in admitted if bool(s.preemptions) is again] for again in (False, True))
        return Step(self._gauges(), [forward], fresh, back, [(sequence, "asked to") for sequence in preempted])

    def _in_flight(self, sequence: Sequence) -> int:
        return sum(sequence in rows for rows in self.flying)

    def _more(self, sequence: Sequence) -> bool:
        if sequence.generated + self._in_flight(sequence) < sequence.max_tokens:
            return True
        if sequence in self.batch:
            self.batch.leave(sequence, owed=True)
        return False

    def _row(self, sequence: Sequence) -> Chunk:
        flying = self._in_flight(sequence)
        known = sequence.num_tokens + flying
        start = known - 1 if flying else sequence.computed
        return Chunk(sequence, start, known - start, decode=known > sequence.prompt_len and known - start == 1)

    def _preempt(self, sequence: Sequence) -> None:
        if sequence in self.batch:
            self.batch.leave(sequence, owed=self.delivers_in_flight)
        if not self.delivers_in_flight:
            self.flying = [[other for other in rows if other is not sequence] for rows in self.flying]
        self.running.remove(sequence)
        self.waiting.insert(0, sequence)
        self.dropped.add(sequence)
        sequence.drop_kv()

    def commit(self, step: Step, sampled: Mapping[Sequence, Ids[int]], stopped: Collection[Sequence]) -> Gauges:
        self.calls.append(f"commit {sum(call.startswith('commit') for call in self.calls)}")
        for sequence in self.flying.pop(0):
            self._settle(sequence, sampled[sequence])
        if step.forwards and self.standing:
            self.batch.advance(sampled)
        self.dropped = set()
        for sequence in stopped:
            if sequence in self.batch:
                self.batch.leave(sequence)
            if sequence in self.running + self.waiting:
                (self.running if sequence in self.running else self.waiting).remove(sequence)
        return self._gauges()

    def _settle(self, sequence: Sequence, ids: Ids[int]) -> None:
        if sequence in self.batch:
            return
        if sequence in self.dropped:
            sequence.append(ids)
        elif sequence in self.running:
            sequence.computed = sequence.num_tokens
            sequence.append(ids)

    def abort(self, sequence: Sequence) -> None:
        self.running.remove(sequence)

    def _gauges(self) -> Gauges:
        return Gauges(len(self.running), len(self.waiting))


class Forgetful(Ahead):
    """A preempted sequence loses its token in flight."""

    delivers_in_flight = False


class Model(SimulatedBackend):
    """Samples ids of its own: the number of the step, 100 apart."""

    def __init__(self) -> None:
        super().__init__(Affine(decode_step=1.0, prefill_step=1.0))
        self.sampled: list[dict[Sequence, list[int]]] = []
        self.landed = 0

    def launch(self, step: Step) -> None:
        super().launch(step)
        self.sampled.append({sequence: [100 * len(self.sampled)] for sequence in step.sampling()})

    def collect(self) -> StepResult:
        self.landed += 1
        return StepResult(super().collect().seconds, self.sampled[self.landed - 1])


def serve(
    policy: Policy, requests: Iterable[Arrival], latency: Affine | None = None, backend: SimulatedBackend | None = None
) -> Run:
    """Steps of a second unless another latency is given; the laws are checked."""
    model = Affine(decode_step=1.0, prefill_step=1.0) if latency is None else latency
    loop = Loop(policy, OpenSession(tuple(requests)), backend or SimulatedBackend(model, empty_step=0.25), audit=True)
    loop.run()
    assert loop.outcome == "completed", loop.report
    return loop.recorder.run({})


def request(id: str, prompt: int, output: int, at: float = 0.0, max_tokens: int | None = None) -> Arrival:
    return Arrival(id, at, ((id, prompt),), output, max_tokens or output)


def columns(run: Run, *names: str) -> list[list[float]]:
    return [run.column(name).tolist() for name in names]


def test_the_next_step_is_scheduled_before_an_output_is_committed() -> None:
    policy = Ahead()
    serve(policy, [request("a", 4, 3)])
    assert policy.calls == [
        "schedule 0", "schedule 1", "commit 0", "schedule 2", "commit 1", "schedule 3", "commit 2", "commit 3",
    ]


def test_times_of_steps_in_flight() -> None:
    """A step starts on the device when the one ahead ends; its row begins when it was scheduled, which for the second
    one is at once. The empty step that waits for the last output takes no time of its own."""
    run = serve(Ahead(), [request("a", 4, 3)])
    starts, ends, width = columns(run, "t_start", "t_end", "forward_width")
    assert (starts, ends, width) == ([0, 0, 1, 2], [1, 2, 3, 3], [1, 1, 1, 0])
    assert run.requests.to_pylist()[0]["token_times"] == [1, 2, 3]


def test_the_hosts_part_of_a_step_hides_behind_the_step_ahead() -> None:
    """Of steps of a second plus half a second of host only the first shows its host part. (Mutation tried: counting
    it in full for every step ends at 4.5 s.)"""
    run = serve(Ahead(), [request("a", 4, 3)], Affine(decode_step=1.0, prefill_step=1.0, host_row=0.5))
    assert run.column("t_end").tolist()[:3] == [1.5, 2.5, 3.5]


def test_a_request_that_arrives_between_is_in_time_for_the_next_scheduling() -> None:
    run = serve(Ahead(), [request("a", 4, 4), request("b", 4, 1, at=0.5)])
    assert columns(run, "t_start", "arrived", "forward_width") == [[0, 0, 1, 2, 3], [1, 0, 1, 0, 0], [1, 1, 2, 1, 0]]


@pytest.mark.parametrize("standing", [False, True])
def test_an_output_that_ends_by_itself_wastes_the_token_in_flight(standing: bool) -> None:
    """The engine learns of the end when the next step is launched already: its token belongs to nobody."""
    run = serve(Ahead(standing=standing), [request("a", 4, 3, max_tokens=9), request("b", 4, 5)])
    assert columns(run, "sampled_tokens", "wasted_tokens", "finished") == [
        [2, 2, 2, 1, 1, 0], [0, 0, 0, 1, 0, 0], [0, 0, 1, 0, 1, 0],
    ]
    assert [row["token_times"] for row in run.requests.to_pylist()] == [[1, 2, 3], [1, 2, 3, 4, 5]]


def test_the_last_token_in_flight_is_wasted_too() -> None:
    """Nobody is left to schedule for when it comes."""
    for standing in (False, True):
        run = serve(Ahead(standing=standing), [request("a", 4, 2, max_tokens=9)])
        assert columns(run, "sampled_tokens", "wasted_tokens") == [[1, 1, 0], [0, 0, 1]]
        assert run.requests.to_pylist()[0]["token_times"] == [1, 2]


@pytest.mark.parametrize("standing", [False, True])
def test_a_preempted_sequence_gets_its_token_in_flight(standing: bool) -> None:
    """It even ends with it where that was its last."""
    policy = Ahead(standing=standing, preempt_at={2: "a", 4: "b"})
    run = serve(policy, [request("a", 4, 5), request("b", 4, 4)])
    rows = run.requests.to_pylist()
    assert [row["token_times"] for row in rows] == [[1, 2, 4, 5, 6], [1, 2, 3, 4]]
    assert [row["preemptions"] for row in rows] == [1, 1]
    assert run.column("wasted_tokens").sum() == 0
    assert [row["recomputed_tokens"] for row in rows] == [5, 0]


@pytest.mark.parametrize("standing", [False, True])
def test_or_it_is_thrown_away(standing: bool) -> None:
    """Mutation tried: handing the lost token's end to the engine finishes `a` one token early."""
    policy = Forgetful(standing=standing, preempt_at={2: "a", 4: "b"})
    run = serve(policy, [request("a", 4, 5), request("b", 4, 4)])
    assert [row["token_times"] for row in run.requests.to_pylist()] == [[1, 4, 5, 6, 7], [1, 2, 3, 6]]
    assert run.column("wasted_tokens").sum() == 2


def test_a_standing_batch_changes_nothing() -> None:
    """Rows through a decode batch give the trace that a chunk for each gives."""
    requests = [request(f"r{i}", 3 + i % 4, 1 + 5 * i % 9, at=i * 0.7, max_tokens=12) for i in range(12)]
    preempt = {5: "r1", 6: "r2", 8: "r3", 9: "r4", 12: "r6", 13: "r7"}
    for kind in (Ahead, Forgetful):
        runs = [serve(kind(standing=standing, preempt_at=preempt), requests) for standing in (False, True)]
        assert runs[0].steps.equals(runs[1].steps)
        assert runs[0].requests.equals(runs[1].requests)
        assert runs[0].column("preempted").sum() > 2


@pytest.mark.parametrize("standing", [False, True])
def test_real_tokens_are_those_of_their_step(standing: bool) -> None:
    """`a` takes part in steps 0, 1, 3, 4 and, computed again, 5; its token of step 1 comes while it waits."""
    policy, backend = Ahead(standing=standing, preempt_at={2: "a"}), Model()
    serve(policy, [request("a", 4, 5), request("b", 4, 6)], backend=backend)
    a, b = (sequence for sequence in backend.sampled[0])
    assert a.tokens.ids(4, 9) == [0, 100, 300, 400, 500]
    assert b.tokens.ids(4, 10) == [0, 100, 200, 300, 400, 500]
