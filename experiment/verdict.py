"""The verdict of an experiment: what its statements come to over all cells."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .statement_nodes import Predicate
from .statement_value import FAILS, NO_DATA, Evaluation, Measured
from .statements import Configs, Entry, Facts, matches

CONFIRMED, REFUTED, INVALID = "CONFIRMED", "REFUTED", "INVALID"
EXIT_CODES: Mapping[str | None, int] = {None: 0, CONFIRMED: 0, REFUTED: 1, INVALID: 2}
SKIPPED = "skipped"
"""The outcome of a statement about variants or cells that were not run."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What was run of one cell. `problems`: variant -> why its run did not complete (a stall, an interruption)."""

    label: str
    configs: Configs
    facts: Facts
    problems: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Finding:
    """One statement in one cell. `outcome`: 'holds', 'fails', 'no data' or 'skipped'; `measured` as people read it."""

    kind: str
    text: str
    because: str | None
    cell: str
    outcome: str
    measured: str
    values: tuple[float, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        values = [value if math.isfinite(value) else None for value in self.values]
        return {"kind": self.kind, "text": self.text, "because": self.because, "cell": self.cell,
                "outcome": self.outcome, "measured": self.measured, "values": values}


@dataclass(frozen=True, slots=True)
class Verdict:
    """`outcome`: CONFIRMED, REFUTED, INVALID, or None where nothing was predicted or part of it was not run.

    `reasons` say in a line each what made it so, where it is not CONFIRMED.
    """

    outcome: str | None
    findings: tuple[Finding, ...]
    reasons: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        """0, 1 refuted, 2 invalid."""
        return EXIT_CODES[self.outcome]

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON and for the report."""
        return {"verdict": self.outcome, "exit_code": self.exit_code, "reasons": list(self.reasons),
                "findings": [finding.as_dict() for finding in self.findings]}


def judge(entries: Sequence[Entry], observations: Sequence[Observation]) -> Verdict:
    """Evaluate every statement in every cell that it speaks of.

    INVALID: a control fails, a control or a prediction has no data, or a run did not complete and no control or
    prediction about it says `completed`. Else REFUTED: a prediction fails. Else None where there is nothing to judge,
    or where a control or prediction was skipped; else CONFIRMED. Notes count for nothing.
    """
    findings = tuple(finding for entry in entries for finding in _findings(entry, observations))
    invalid = [*_incomplete(entries, observations), *(_reason(each) for each in findings if _invalidates(each))]
    refuted = [_reason(each) for each in findings if each.kind == "expect" and each.outcome == FAILS]
    if invalid:
        return Verdict(INVALID, findings, tuple(invalid))
    if refuted:
        return Verdict(REFUTED, findings, tuple(refuted))
    judged = [each for each in findings if each.kind != "note"]
    skipped = tuple(_reason(each) for each in judged if each.outcome == SKIPPED)
    return Verdict(None if skipped or not judged else CONFIRMED, findings, skipped)


def _findings(entry: Entry, observations: Sequence[Observation]) -> Iterator[Finding]:
    spoken = [seen for seen in observations if matches(entry.statement, seen.configs)]
    if not spoken:
        yield _finding(entry, "", Measured(SKIPPED, "no cell that was run matches"))
    for seen in spoken:
        absent = [variant for variant in entry.statement.variants if variant not in seen.configs]
        if absent:
            yield _finding(entry, seen.label, Measured(SKIPPED, f"{', '.join(absent)} did not run"))
        else:
            evaluation = Evaluation(seen.facts, seen.configs, seen.problems)
            yield _finding(entry, seen.label, evaluation.measure(entry.statement))


def _finding(entry: Entry, cell: str, measured: Measured) -> Finding:
    text = entry.statement.text
    return Finding(entry.kind, text, entry.because, cell, measured.outcome, measured.text, measured.values)


def _invalidates(finding: Finding) -> bool:
    if finding.kind == "note":
        return False
    return finding.outcome == NO_DATA or (finding.kind == "control" and finding.outcome == FAILS)


def _incomplete(entries: Iterable[Entry], observations: Sequence[Observation]) -> Iterator[str]:
    """Runs that did not complete, where no statement of the verdict is about that."""
    about = [entry.statement for entry in entries if entry.kind != "note" and _is_completion(entry)]
    for seen in observations:
        asked = {name for each in about for name in each.variants if matches(each, seen.configs)}
        for variant, problem in seen.problems.items():
            if variant not in asked:
                yield f"{_prefix(seen.label)}{variant} did not complete: {problem}"


def _is_completion(entry: Entry) -> bool:
    claim = entry.statement.claim
    return isinstance(claim, Predicate) and claim.name == "completed"


def _reason(finding: Finding) -> str:
    return f"{_prefix(finding.cell)}{finding.kind} {finding.outcome}: {finding.text} ({finding.measured})"


def _prefix(cell: str) -> str:
    return f"[{cell}] " if cell else ""
