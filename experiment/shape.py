"""The top level of an experiment: which sections there are; each section is validated by the part it configures."""

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from .document import Document
from .errors import Place
from .faults import validated

Section = dict[str, Any]

def _named(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}", name):
        raise ValueError(f"{name!r} is no name: up to 100 letters, digits, '_', '-' and '.' (the first no '-' or '.')")
    return name


Name = Annotated[str, AfterValidator(_named)]
Text = Annotated[str, StringConstraints(min_length=1)]


class Because(BaseModel):
    """A statement with the reason that people are shown beside it."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    that: Text
    because: Text | None = None


class PolicyNamed(BaseModel):
    """A policy and its options, which the policy itself validates."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    name: Text


Statements = list[Text | Because]


class Shape(BaseModel):
    """The sections of an experiment. `policy` may be left out where every variant names its own."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    name: Name
    description: str = ""
    seed: Annotated[int, Field(ge=0)] | None = None
    model: Text | None = None
    hardware: Text | None = None
    workload: Section
    engine: Section = {}
    latency: Text | Section | None = None
    policy: Text | PolicyNamed | None = None
    variants: dict[Name, Section | None] = {}
    sweep: dict[str, Annotated[list[Any], Field(min_length=1)]] = {}
    control: Statements = []
    expect: Statements = []
    note: Statements = []


PARTS = ("seed", "model", "hardware", "workload", "engine", "latency", "policy")
"""What makes a run: the sections that a variant or a sweep may change."""


def written(raw: Mapping[str, Any]) -> dict[str, Any]:
    """What is there: `engine:` with nothing behind it is nothing."""
    return {key: value for key, value in raw.items() if value is not None}


def shape_of(raw: Mapping[str, Any], document: Document, place: Place) -> Shape:
    """Validate the top level; `raw` is the document's content, changed or not. A section left empty is left out.

    Raises `UserError` with one line per problem.
    """
    shape: Shape = validated(Shape, {"name": document.name, **written(raw)}, place)
    return shape
