"""Steps that were measured: what each asked of the hardware, and how long it took."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .fit import FitError

Floats = NDArray[np.float64]
COLUMNS = (
    "prefill_seqs", "decode_seqs", "prefill_tokens", "padded_tokens", "decode_tokens", "context_tokens", "t_start",
    "t_end",
)
"""Columns of a step table that a fit of single steps needs."""
OPTIONAL = ("attended_tokens", "host_seconds", "forwards")
"""Those it makes use of where they are there (`forwards`: passes of the step, else one)."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Arrays of shape [steps]: counts as in `latency.work.Work`, seconds of the whole step and of the host's part."""

    forwards: Floats
    prefill_seqs: Floats
    decode_seqs: Floats
    prefill_tokens: Floats
    padded_tokens: Floats
    decode_tokens: Floats
    context_tokens: Floats
    attended_tokens: Floats
    seconds: Floats
    host_seconds: Floats

    def __len__(self) -> int:
        return len(self.seconds)

    @property
    def rows(self) -> Floats:
        return self.prefill_seqs + self.decode_seqs

    @property
    def prefills(self) -> NDArray[np.bool_]:
        """Steps with any prefill row."""
        return np.asarray(self.prefill_seqs > 0)

    def take(self, chosen: NDArray[Any]) -> "Measured":
        """Those steps, by mask or by place."""
        return Measured(**{each.name: getattr(self, each.name)[chosen] for each in fields(self)})


def measured_steps(tables: Iterable[Mapping[str, Any]]) -> Measured:
    """The steps that ran anything, of one or more step tables (`COLUMNS`, and of `OPTIONAL` what is there).

    Raises FitError where a column is missing, no step ran anything, or one took no time.
    """
    parts = [_of_table(columns) for columns in tables]
    found = Measured(**{
        each.name: np.concatenate([getattr(part, each.name) for part in parts] or [np.empty(0)])
        for each in fields(Measured)
    })
    found = found.take(found.rows > 0)
    if not len(found):
        raise FitError("no step ran anything: there is nothing to fit")
    bad = ~(np.isfinite(found.seconds) & (found.seconds > 0))
    if bad.any():
        raise FitError(f"{bad.sum()} of {len(bad)} steps took no time, the first {found.seconds[bad][0]} s: seconds "
                       "must be above 0")
    return found


def _of_table(columns: Mapping[str, Any]) -> Measured:
    missing = [name for name in COLUMNS if name not in columns]
    if missing:
        raise FitError(f"the step table has no column '{missing[0]}'; a fit needs {', '.join(COLUMNS)}")
    known = {name: np.asarray(columns[name], dtype=np.float64) for name in (*COLUMNS, *OPTIONAL) if name in columns}
    steps = len(known["t_end"])
    counts = {name: known[name] for name in COLUMNS if name not in ("t_start", "t_end")}
    return Measured(
        **counts, forwards=known.get("forwards", np.ones(steps)), seconds=known["t_end"] - known["t_start"],
        **{name: known.get(name, np.zeros(steps)) for name in ("attended_tokens", "host_seconds")},
    )
