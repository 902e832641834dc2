"""The table latency model from measured steps."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from .fit import FitError, non_negative
from .latency.curve import Curve, weights
from .latency.table import DecodeTable, HostPart, PrefillTable, TableConfig
from .measured import Floats, Measured
from .residuals import Residuals

FEWEST = 5
"""Steps that a region needs."""
PER_KNOT = 3
"""Steps that a knot needs. Of 2, 3, 4, 5 and 8, on a record of a real vLLM with few small prefills, this one told left
out steps best (steps with prefill: 3.4 % mean error, against 4.0 % with 5)."""
ROUNDS = 12
"""Of reweighting: the weights of outliers have settled by then."""
TOLERANCE = 3.0
"""Residuals of more than this many standard deviations (estimated by the median) count less."""


@dataclass(frozen=True, slots=True)
class TableFit(Residuals):
    """The fitted model, and what it gives for each fitted step: `seconds` as measured and `predicted`, shape [steps].

    `notes`: where the steps say little, in words.
    """

    config: TableConfig
    seconds: Floats
    predicted: Floats
    notes: tuple[str, ...] = ()

    def settings(self) -> dict[str, Any]:
        """The model as a configuration has it."""
        return self.config.model_dump()


def fit_table(measured: Measured, *, charge_padding: bool = False) -> TableFit:
    """The table that minimises the squared errors relative to its own prediction, outliers weighed down (Huber).

    Relative to the prediction and not to the measurement, so that the mean is met: a fit relative to noisy measurements
    comes out too low. Decode steps and steps with any prefill are fitted apart. Knots stand where enough steps are.
    Raises FitError where either kind has fewer than FEWEST steps.
    """
    decode, prefill = measured.take(~measured.prefills), measured.take(measured.prefills)
    _check(decode, prefill)
    rows = _decode(decode)
    tokens = _downwards(_prefill(prefill, charge_padding), rows.seconds[0])
    config = TableConfig(decode=rows, prefill=tokens, host=_host(measured), charge_padding=charge_padding)
    notes = _notes(config, decode, prefill)
    return TableFit(config, measured.seconds, predict(config, measured), notes)


def predict(config: TableConfig, steps: Measured) -> Floats:
    """Seconds of each step, shape [steps]: what `Table.seconds` gives, for all at once."""
    decode, prefill = config.decode, config.prefill
    rows = _curve(_decode_tokens(steps), decode.rows, decode.seconds, steps)
    tokens = _curve(_tokens(steps, config.charge_padding), prefill.tokens, prefill.seconds, steps)
    more = prefill.row * steps.rows + prefill.attended_pair * steps.attended_tokens
    context = np.where(steps.prefills, prefill.context_token, decode.context_token) * steps.context_tokens
    return np.asarray(np.where(steps.prefills, tokens + more, rows) + context, dtype=np.float64)


def _curve(each: Floats, knots: list[int], seconds: list[float], steps: Measured) -> Floats:
    return np.asarray(steps.forwards * Curve(tuple(knots), tuple(seconds)).at(each), dtype=np.float64)


def _decode_tokens(steps: Measured) -> Floats:
    """Per forward."""
    return steps.decode_tokens / steps.forwards


def _tokens(steps: Measured, charge_padding: bool) -> Floats:
    """Per forward, those of decode rows included."""
    prefill = steps.padded_tokens if charge_padding else steps.prefill_tokens
    return np.asarray((prefill + steps.decode_tokens) / steps.forwards)


def _decode(steps: Measured) -> DecodeTable:
    """Knots may go down as well as up: kernels for three rows may be faster than those for two."""
    each = _decode_tokens(steps)
    knots = rising(each)
    basis = steps.forwards[:, None] * weights(each, knots)
    found = _robust(np.column_stack([basis, steps.context_tokens]), steps.seconds)
    return DecodeTable(rows=knots, seconds=_short(found[:-1]), context_token=_short(found[-1:])[0])


def _prefill(steps: Measured, charge_padding: bool) -> PrefillTable:
    """More tokens never cost less: the basis is what each knot adds to the one before it."""
    each = _tokens(steps, charge_padding)
    knots = rising(each)
    basis = steps.forwards[:, None] * (weights(each, knots) @ np.tri(len(knots)))
    others = np.column_stack([steps.rows, steps.context_tokens, steps.attended_tokens])
    found = _robust(np.column_stack([basis, others]), steps.seconds)
    row, context, pair = _short(found[len(knots):])
    return PrefillTable(tokens=knots, seconds=_short(np.cumsum(found[: len(knots)])), row=row, context_token=context,
                        attended_pair=pair)


def _downwards(prefill: PrefillTable, one_row: float) -> PrefillTable:
    """With a knot at one token, on the line through the first two: fewer tokens than were seen cost less, but not less
    than one decode row."""
    if len(prefill.tokens) == 1 or prefill.tokens[0] == 1:
        return prefill
    (low, high), (first, second) = prefill.tokens[:2], prefill.seconds[:2]
    line = first - (second - first) / (high - low) * (low - 1)
    one = min(first, max(line, one_row))
    seconds = [*_short(np.array([one])), *prefill.seconds]
    return prefill.model_copy(update={"tokens": [1, *prefill.tokens], "seconds": seconds})


def _host(steps: Measured) -> HostPart:
    known = steps.host_seconds > 0
    if known.sum() < FEWEST:
        return HostPart()
    features = np.column_stack([np.ones(int(known.sum())), steps.rows[known]])
    step, row = _short(_robust(features, steps.host_seconds[known]))
    return HostPart(step=step, row=row)


def rising(counts: Floats) -> list[int]:
    """Knots for these counts: rungs of a ladder (all up to 8, then four an octave), each with PER_KNOT or more nearest
    to it. Where a rung has fewer they go with those of the next ones, to the rung in the middle of them; the middle of
    all counts where there are fewer than that."""
    top = int(np.ceil(counts.max())) if len(counts) else 1
    rungs = np.array(_ladder(top), dtype=np.float64)
    nearest = np.sort(np.abs(np.log(counts)[:, None] - np.log(rungs)[None, :]).argmin(axis=1))
    knots, start = [], 0
    for end in range(1, len(nearest) + 1):
        whole = end == len(nearest) or nearest[end] != nearest[end - 1]
        if whole and end - start >= PER_KNOT:
            knots.append(int(rungs[nearest[(start + end) // 2]]))
            start = end
    return knots or [max(int(np.median(counts)), 1)]


def _ladder(top: int) -> list[int]:
    """1 to 8, then 10, 12, 14, 16, 20, ... up to the first at or above `top`."""
    rungs, step = list(range(1, 9)), 2
    while rungs[-1] < top:
        for _ in range(4):
            rungs.append(rungs[-1] + step)
        step *= 2
    return rungs


def _robust(features: Floats, seconds: Floats) -> Floats:
    """Coefficients from 0 up by iteratively reweighted least squares, shape [features]."""
    weight = 1.0 / seconds
    for _ in range(ROUNDS):
        scale = np.linalg.norm(features * weight[:, None], axis=0)
        scale[scale == 0.0] = 1.0
        found = non_negative(features * weight[:, None] / scale, seconds * weight) / scale
        predicted = np.maximum(features @ found, 1e-3 * seconds)
        residuals = np.abs(seconds / predicted - 1.0)
        spread = max(1.4826 * float(np.median(residuals)), 1e-9)
        weight = np.sqrt(np.minimum(1.0, TOLERANCE * spread / np.maximum(residuals, 1e-12))) / predicted
    return np.asarray(found, dtype=np.float64)


def _check(decode: Measured, prefill: Measured) -> None:
    for steps, named, way_out in (
        (decode, "of decode rows only", "longer outputs"), (prefill, "with prefill", "more prompts"),
    ):
        if len(steps) < FEWEST:
            raise FitError(f"{len(steps)} steps {named}: a table needs {FEWEST} at least; measure {way_out}, or fit "
                           "--model affine")


def _notes(config: TableConfig, decode: Measured, prefill: Measured) -> tuple[str, ...]:
    notes = [_reach("decode rows", config.decode.rows, _decode_tokens(decode)),
             _reach("tokens of a prefill", config.prefill.tokens, _tokens(prefill, config.charge_padding))]
    if not prefill.attended_tokens.any():
        notes.append("the steps do not say how many pairs prefill rows attend: tokens and context stand for them")
    return tuple(note for note in notes if note)


def _reach(named: str, knots: list[int], counts: Floats) -> str:
    beyond = int((counts > knots[-1]).sum())
    return f"{named}: {beyond} steps lie beyond {knots[-1]}, too few for a knot of their own" if beyond else ""


def _short(values: Floats) -> list[float]:
    """In six digits, as the file has them: the model is that of the file."""
    return [float(f"{value:.6g}") for value in values]
