"""Hypothesis strategies: small workloads, engines and options of any policy."""

from dataclasses import dataclass, field
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from hypothesis import HealthCheck, reject, settings, strategies as st
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from arcsim.policies.base import EngineConfig, Policy
from arcsim.workloads.arrival import Arrival, Piece

from .serving import OnFinish, request


def stable(examples: int) -> settings:
    """The same examples in every run. Drawing a run's parts is slow work, and that is well."""
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large]
    return settings(max_examples=examples, deadline=None, derandomize=True, suppress_health_check=slow)


def pieces(index: int, shared: bool) -> st.SearchStrategy[tuple[Piece, ...]]:
    """A prompt of 1 to 24 tokens: a common beginning (of one of two texts) and an own end, or all its own."""
    own = st.integers(1, 12).map(lambda length: (f"own {index}", length))
    begin = st.tuples(st.sampled_from(["one text", "another"]), st.sampled_from([12, 9, 8, 1]))
    return st.tuples(begin, own) if shared else st.tuples(own)


APART = (0.0, 0.0, 0.0, 1.0, 0.5, 7.25, 30.0)
"""Seconds between arrivals: in ties, on the ends of steps of a second, between them, after idle times."""


@st.composite
def workloads(
    draw: st.DrawFn, *, most: int = 8, shared: st.SearchStrategy[bool] = st.booleans(),  # noqa: B008 - no state
) -> list[Arrival]:
    """Requests with outputs of 1 to 40 tokens that may end before `max_tokens`; `shared` beginnings or none."""
    requests: list[Arrival] = []
    now = 0.0
    for index in range(draw(st.integers(min(2, most), most))):
        now += draw(st.sampled_from(APART))
        output = draw(st.sampled_from([30, 40, 17, 9, 2, 1]))
        requests.append(request(
            f"r{index}", draw(pieces(index, draw(shared))), output, now,
            max_tokens=output + draw(st.sampled_from([0, 0, 0, 5])), priority=draw(st.integers(0, 2)),
        ))
    return requests


@dataclass(slots=True)
class ClosedLoop:
    """Requests that follow on the first ends, each some seconds after its own."""

    following: list[tuple[int, int, float]]
    all: list[Arrival] = field(default_factory=list)

    def session(self) -> OnFinish:
        """A fresh pass."""
        left = list(self.following)

        def answer(id: str, now: float) -> Arrival | None:
            if not left:
                return None
            prompt, output, think = left.pop()
            self.all.append(request(f"c{len(left)}", prompt, output, now + think))
            return self.all[-1]

        return answer


def closed_loops() -> st.SearchStrategy[ClosedLoop]:
    each = st.tuples(st.integers(1, 20), st.integers(1, 12), st.sampled_from([0.0, 1.0, 0.3]))
    return st.builds(ClosedLoop, st.lists(each, max_size=3))


@st.composite
def engines(draw: st.DrawFn, policy: type[Policy]) -> EngineConfig:
    """A pool that holds one request or two of `workloads`, seats for more, a budget of a token for each of them."""
    seats, size = draw(st.sampled_from([4, 6, 3, 2, 1])), draw(st.sampled_from([4, 1, 2, 8]))
    values: dict[str, Any] = {
        "block_size": size, "num_blocks": 2 + draw(st.integers(50, 90)) // size, "max_num_seqs": seats,
        "max_num_batched_tokens": draw(st.sampled_from([None, 80, seats + 20, seats + 5, seats])),
        "max_model_len": draw(st.sampled_from([None, None, None, None, None, 55])),
    }
    return EngineConfig(**{key: value for key, value in values.items() if key in policy.engine_keys})


@st.composite
def built(draw: st.DrawFn, policy: type[Policy]) -> Policy:
    """A fresh policy; combinations that it refuses are not drawn."""
    strict = ("strict_vllm", "strict_sglang")  # lets in what stalls
    bare = {name: False for name in policy.Options.model_fields if name in strict}
    engine, options = draw(engines(policy)), draw(options_of(policy.Options, **bare))
    try:
        return policy(engine, options)
    except ValueError:
        return reject()


def again(policy: Policy) -> Policy:
    """Another one like it, with nothing done yet."""
    return type(policy)(policy.engine, policy.options)


def options_of(model: type[BaseModel], **fixed: Any) -> st.SearchStrategy[BaseModel]:
    """All values of what is a choice or a flag, small ones of what is a count; the rest keeps its default."""
    known = {name: values_of(field) for name, field in model.model_fields.items() if name not in fixed}
    drawn = {name: values for name, values in known.items() if values is not None}
    return st.fixed_dictionaries({}, optional=drawn).map(lambda found: _valid(model, found | fixed))


def _valid(model: type[BaseModel], values: dict[str, Any]) -> BaseModel:
    try:
        return model(**values)
    except ValidationError:
        return reject()  # a value between those that are allowed


def values_of(field: FieldInfo) -> st.SearchStrategy[Any] | None:
    found = _values(field.annotation)
    if found is not None:
        return found
    return _counts(field) if field.annotation is int else None


def _values(annotation: Any) -> st.SearchStrategy[Any] | None:
    if annotation is bool:
        return st.booleans()
    if get_origin(annotation) is Literal:
        return st.sampled_from(get_args(annotation))
    if get_origin(annotation) in (Union, UnionType):
        parts = [st.none() if part is NoneType else _values(part) for part in get_args(annotation)]
        known = [part for part in parts if part is not None]
        return st.one_of(known) if len(known) == len(parts) else None
    return None


def _counts(field: FieldInfo) -> st.SearchStrategy[int]:
    limits: list[Any] = field.metadata
    low = max([0, *(limit.ge for limit in limits if hasattr(limit, "ge")),
               *(limit.gt + 1 for limit in limits if hasattr(limit, "gt"))])
    high = min([low + 4, *(limit.le for limit in limits if hasattr(limit, "le")),
                *(limit.lt - 1 for limit in limits if hasattr(limit, "lt"))])
    return st.integers(low, high)
