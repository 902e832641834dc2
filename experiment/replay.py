"""A run's requests decided again by its policy at the run's own step times: what is left are the decisions."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from pydantic import ValidationError

from ..engine.recorder import Recorder
from ..engine.span import Span
from ..engine.stepper import Stepper
from ..engine.times import to_ns
from ..policies.base import EngineConfig, Policy, Sequence, Step, Tokens
from ..policies.find import PolicyNotFound, find_policy
from ..traces.run import Run
from .errors import UserError

KEPT = ("origin", "config", "log_style", "versions", "machine", "seed")


def replay(run: Run, where: str = "the run") -> Run:
    """The run as its policy decides it when every step begins and ends at the run's times and every request is there
    before the step before which it was there in the run. Nothing of the run's own decisions is used.

    For runs of simulation, of the executor or of an engine's record, whose requests share no prefix and have one
    priority: a run holds neither. The longest output that a client allowed is taken for the output's length. Raises
    `UserError` where the run is not of that kind, `PolicyError`.
    """
    _check(run, where)
    return _Replay(run, _policy(run.meta.get("config"), where)).run()


def _check(run: Run, where: str) -> None:
    why_not = next(_obstacles(run), None)
    if why_not is not None:
        raise UserError(f"{where}: {why_not}")


def _obstacles(run: Run) -> Iterator[str]:
    """What a run would have to hold beside what it does."""
    statuses = run.requests.column("status").to_pylist()
    shared = int(run.request_column("cached_tokens").sum())
    aborted, rejected = statuses.count("aborted"), statuses.count("rejected")
    if not run.steps.num_rows or not run.requests.num_rows:
        yield "no steps or no requests in it: only a run that has both can be replayed"
    if int(run.column("arrived").sum()) == 0:
        yield "its steps do not say which requests had arrived: only whole records are replayed"
    if shared:
        yield (f"its prompts share prefixes ({shared:,} tokens came from the cache), and a run does not hold them: "
               "simulate it from its workload instead")
    if aborted:
        yield f"{aborted} requests were aborted, and a run does not hold when: it is not replayed"
    if rejected:
        yield f"{rejected} requests were rejected, and a run does not hold how much they asked for: it is not replayed"
    if _has_priorities(run.meta.get("config")):
        yield ("its requests have several priorities, and a run does not hold whose is which: simulate it from its "
               "workload instead")


def _has_priorities(config: Any) -> bool:
    workload = config.get("workload") if isinstance(config, Mapping) else None
    found = workload.get("priority") if isinstance(workload, Mapping) else None
    return isinstance(found, Iterable) and len(set(found)) > 1


def _policy(config: Any, where: str) -> Policy:
    """The policy that run.json names, with its limits and options."""
    found = config if isinstance(config, Mapping) else {}
    engine, options = found.get("engine"), found.get("policy")
    if not isinstance(engine, Mapping) or not isinstance(options, Mapping) or "name" not in options:
        raise UserError(f"{where}: run.json has no config.engine and config.policy.name: which policy decided?")
    try:
        policy = find_policy(options["name"])
        limits = {key: engine[key] for key in EngineConfig.model_fields if key in engine}
        own = {key: value for key, value in options.items() if key in policy.Options.model_fields}
        return policy(EngineConfig.model_validate(limits), policy.Options.model_validate(own))
    except (PolicyNotFound, ValidationError) as error:
        raise UserError(f"{where}: run.json: config: {error}") from error


class _Replay:
    """Times in nanoseconds, as the loop keeps them."""

    def __init__(self, run: Run, policy: Policy) -> None:
        self._of = run
        self._policy = policy
        self._stepper = Stepper(policy)
        self._recorder = Recorder(policy.ledger.usable if policy.ledger is not None else 0)
        self._to_come = deque(_requests(run))
        self._flying: deque[tuple[Step, Span]] = deque()
        self._times = [[to_ns(t) for t in run.column(name).tolist()] for name in ("t_start", "t_end")]

    def run(self) -> Run:
        columns = [self._of.column(name).tolist() for name in ("arrived", "host_seconds", "device_seconds")]
        for start, end, arrived, host, device in zip(*self._times, *columns, strict=True):
            self._step(Span(start, end, host, device), arrived)
        while self._flying:
            self._commit()
        left = len(self._stepper.live) + len(self._to_come)
        outcome = "completed" if not left else "unfinished"
        report = f"the steps of the run are over and {left} requests are not" if left else ""
        facts = {key: self._of.meta[key] for key in KEPT if key in self._of.meta}
        notes = ["decided again at the step times of the run"]
        return self._recorder.run(facts | {
            "arm": "replayed", "policy": self._of.meta.get("policy"), "outcome": outcome, "report": report,
            "notes": notes,
        })

    def _step(self, span: Span, arrived: int) -> None:
        while self._flying and not self._stepper.live:
            self._commit()
        if not self._stepper.live and not self._flying:
            self._stepper.idle()
        for _ in range(min(arrived, len(self._to_come))):
            self._arrive(*self._to_come.popleft())
        if not self._stepper.live:
            return
        decision = self._stepper.schedule(span.start / 1e9)
        self._recorder.decide(decision, span.start)
        self._flying.append((decision.step, span))
        if len(self._flying) > self._policy.overlap:
            self._commit()

    def _arrive(self, sequence: Sequence, output: int) -> None:
        reason = self._stepper.arrive(sequence, output)
        self._recorder.arrive(sequence, to_ns(sequence.arrival), reason)

    def _commit(self) -> None:
        step, span = self._flying.popleft()
        committed = self._stepper.commit(step, step.emulated())
        self._recorder.commit(step, span, committed)


def _requests(run: Run) -> list[tuple[Sequence, int]]:
    """In order of arrival, each with its output length; of an unfinished one, a token more than it got."""
    order = np.argsort(run.request_column("arrival"), kind="stable").tolist()
    rows = [run.requests.slice(place, 1).to_pylist()[0] for place in order]
    found = []
    for row in rows:
        output = max(1, row["output_tokens"] + (row["status"] == "unfinished"))
        prompt = Tokens.of_pieces([(f"prompt of {row['id']}", row["prompt_tokens"])])
        found.append((Sequence(row["id"], prompt, output, arrival=row["arrival"]), output))
    return found
