"""Which attention backend a run takes, and why."""

from collections.abc import Mapping, Sequence as Ids
from dataclasses import dataclass
from types import MappingProxyType

from ..errors import ExecutorError
from .base import Attention, Needs
from .cpp import Cpp
from .flash_attn import FlashAttention2, FlashAttention3
from .flashinfer import FlashInfer
from .reference import Reference
from .torch_varlen import TorchVarlen

BACKENDS: Mapping[str, Ids[type[Attention]]] = MappingProxyType({
    "flash_attn": (FlashAttention3, FlashAttention2),
    "flashinfer": (FlashInfer,),
    "torch_varlen": (TorchVarlen,),
    "cpp": (Cpp,),
    "reference": (Reference,),
})
"""By name, best first; under one name the first that can serve is taken."""

NAMES = ("auto", *BACKENDS)


@dataclass(frozen=True, slots=True)
class Choice:
    """A backend, and one line on why it was taken."""

    attention: Attention
    why: str


def choose(name: str, needs: Needs) -> Choice:
    """The backend of that name, or the best one that can serve for `auto`.

    Raises `ExecutorError` with the reason where the named one cannot.
    """
    if name not in NAMES:
        raise ExecutorError(f"no attention backend '{name}'; known: {', '.join(NAMES)}")
    if name != "auto":
        return Choice(_take(name, needs), "as asked")
    passed: list[str] = []
    for candidate in BACKENDS:
        reasons = _refusals(candidate, needs)
        if None in reasons:
            return Choice(_take(candidate, needs), "; ".join(["the best that can serve", *passed]))
        if not _misplaced(candidate, needs):
            passed.append(f"not {candidate}: {_told(reasons)}")
    raise ExecutorError(f"no attention backend can serve: {'; '.join(passed)}")


def _take(name: str, needs: Needs) -> Attention:
    reasons = _refusals(name, needs)
    if None not in reasons:
        raise ExecutorError(f"attention '{name}' cannot serve: {_told(reasons)}")
    return BACKENDS[name][reasons.index(None)].load(needs)


def _refusals(name: str, needs: Needs) -> Ids[str | None]:
    wrong = _misplaced(name, needs)
    return [wrong] if wrong else [backend.refusal(needs) for backend in BACKENDS[name]]


def _misplaced(name: str, needs: Needs) -> str | None:
    place, device = BACKENDS[name][0].computes_on, needs.device.type
    return None if place in (None, device) else f"it computes on {place}, the model is on {device}"


def _told(reasons: Ids[str | None]) -> str:
    return "; ".join(dict.fromkeys(reason for reason in reasons if reason))
