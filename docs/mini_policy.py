"""A policy of one's own: whoever has the shortest prompt goes first, and nobody is ever preempted."""

from collections.abc import Collection, Mapping, Sequence as Ids

from arcsim.policies.base import Chunk, Forward, Gauges, Policy, Sequence, Step


class ShortestFirst(Policy):
    """Admits by prompt length while there are seats; every running sequence runs whole at each step."""

    engine_keys = frozenset({"max_num_seqs"})  # of the engine's limits, the only one that it heeds

    def __init__(self, engine, options):  # type: ignore[no-untyped-def]
        super().__init__(engine, options)
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []

    def add(self, sequence: Sequence) -> str | None:
        self.waiting.append(sequence)
        return None

    def schedule(self, now: float) -> Step:
        self.waiting.sort(key=lambda sequence: sequence.prompt_len)
        seats = self.engine.max_num_seqs
        free = len(self.waiting) if seats is None else seats - len(self.running)
        admitted, self.waiting = self.waiting[:free], self.waiting[free:]
        self.running += admitted
        chunks = [Chunk.rest(sequence) for sequence in self.running]
        return Step(self._gauges(), [Forward(chunks)], admitted=admitted)

    def commit(self, step: Step, sampled: Mapping[Sequence, Ids[int]], stopped: Collection[Sequence]) -> Gauges:
        step.settle(sampled)
        self.running = [sequence for sequence in self.running if sequence not in stopped]
        return self._gauges()

    def abort(self, sequence: Sequence) -> None:
        (self.running if sequence in self.running else self.waiting).remove(sequence)

    def _gauges(self) -> Gauges:
        return Gauges(len(self.running), len(self.waiting))
