"""What steps of the same kind cost in two runs: their costs apart from how often each kind occurred."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .known import known_columns
from .quantities import own_starts
from .run import Run
from .spread import NAN, share

Ints = NDArray[np.int64]
EXACT = 16
"""Up to so many rows or tokens, each number is a kind of its own; beyond, there are eight kinds an octave."""


NAMES = ("all", "decode", "prefill")
NEEDED = frozenset({"forward_width", "prefill_seqs", "decode_seqs", "prefill_tokens"})
"""Columns without which no kind is known."""


@dataclass(frozen=True, slots=True)
class StepCost:
    """Steps of one kind, as in `NAMES`: all of a run, decode rows only (`decode`), with any prefill row (`prefill`).

    `steps`: how many each run has. `a`: seconds of a's steps of kinds that both runs have, `b`: what these would take
    at b's mean cost of each kind, both as a mean over the steps. `relative`: b / a - 1, NaN where no kind is shared.
    `covered`: the share of a's seconds that is of shared kinds.
    """

    name: str
    steps: tuple[int, int]
    a: float
    b: float
    relative: float
    covered: float


@dataclass(frozen=True, slots=True)
class _Steps:
    """Of one run, those that ran anything: seconds, whether any row prefills, and the kind."""

    seconds: NDArray[np.float64]
    prefill: NDArray[np.bool_]
    kinds: Ints

    @classmethod
    def of(cls, run: Run, prefilled: str) -> "_Steps":
        """`prefilled`: the column that counts prefilled tokens."""
        width, seconds = run.column("forward_width"), run.column("t_end") - own_starts(run)
        ran = (width > 0) & (seconds > 0)
        prefill = run.column("prefill_seqs") > 0
        tokens = run.column("decode_seqs") + run.column(prefilled)
        kinds = _rungs(tokens) * 2 + prefill
        return cls(seconds[ran], prefill[ran], kinds[ran])

    def only(self, prefill: bool) -> "_Steps":
        chosen = self.prefill == prefill
        return _Steps(self.seconds[chosen], self.prefill[chosen], self.kinds[chosen])


_NONE = _Steps(np.zeros(0), np.zeros(0, dtype=np.bool_), np.zeros(0, dtype=np.int64))


def step_costs(a: Run, b: Run) -> tuple[StepCost, ...]:
    """Over all steps that ran anything, and over those of decode rows only and those with prefill apart. Steps are
    alike where they have the same rows or nearly as many tokens (see `EXACT`); their context may differ. A step that
    was scheduled while the one before it ran costs what it took after that. NaN where a run does not tell its rows."""
    known = set(known_columns(a)) & set(known_columns(b))
    if not known >= NEEDED:
        return tuple(_cost(name, _NONE, _NONE) for name in NAMES)
    prefilled = "padded_tokens" if "padded_tokens" in known else "prefill_tokens"
    return tuple(_costs(_Steps.of(a, prefilled), _Steps.of(b, prefilled)))


def _costs(a: _Steps, b: _Steps) -> Iterator[StepCost]:
    sides = ((a, b), (a.only(False), b.only(False)), (a.only(True), b.only(True)))
    yield from (_cost(name, *pair) for name, pair in zip(NAMES, sides, strict=True))


def _cost(name: str, a: _Steps, b: _Steps) -> StepCost:
    shared = np.intersect1d(a.kinds, b.kinds)
    mine = np.isin(a.kinds, shared)
    counts = (len(a.seconds), len(b.seconds))
    if not mine.any():
        return StepCost(name, counts, NAN, NAN, NAN, 0.0)
    means = [b.seconds[b.kinds == kind].mean() for kind in shared]
    took, would = float(a.seconds[mine].mean()), float(np.mean(np.take(means, np.searchsorted(shared, a.kinds[mine]))))
    covered = share(float(a.seconds[mine].sum()), float(a.seconds.sum()))
    return StepCost(name, counts, took, would, would / took - 1, covered)


def _rungs(tokens: Ints) -> Ints:
    """A number for each kind: the tokens themselves, then eighths of an octave."""
    beyond = EXACT + np.floor(8 * np.log2(np.maximum(tokens, 1) / EXACT))
    return np.where(tokens <= EXACT, tokens, beyond.astype(np.int64) + 1)
