"""What pydantic finds, in the words of the file.

Mutations tried, each caught here: names of union members kept in the keys, suggestions from every member of a union
instead of the one that `kind` names, the text branch told beside what is wrong inside a mapping.
"""

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, field_validator

from arcsim.experiment.errors import UserError, shown, suggestion
from arcsim.experiment.faults import validated


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Circle(Model):
    kind: Literal["circle"]
    radius: Annotated[float, Field(gt=0)]


class Square(Model):
    kind: Literal["square"]
    side: int | list[int]

    @field_validator("side")
    @classmethod
    def _not_seven(cls, value: Any) -> Any:
        if value == 7:
            raise ValueError("seven is no side")
        return value


class Drawing(Model):
    title: str | Circle = ""
    mode: Literal["ink", "chalk"] = "ink"
    flag: bool = False
    shapes: list[Annotated[Circle | Square, Field(discriminator="kind")]] = []


class Place:
    def where(self, key: str) -> str:
        return f"f.yaml:1: {key}"


def told(raw: object) -> list[str]:
    with pytest.raises(UserError) as caught:
        validated(Drawing, raw, Place(), "drawing")
    return [line.removeprefix("f.yaml:1: drawing") for line in str(caught.value).splitlines()]


@pytest.mark.parametrize(("raw", "lines"), [
    ({"shapes": [{"kind": "circle", "radius": 0.0}]}, [".shapes.0.radius: found 0.0; it must be greater than 0"]),
    ({"shapes": [{"kind": "circle", "radius": "3"}]},
     [".shapes.0.radius: found \"3\" (a number in quotes is a text); it must be a number"]),
    ({"shapes": [{"kind": "circle", "radius": "2.9 parsecs"}]},
     [".shapes.0.radius: found \"2.9 parsecs\" (times are written 2.9ms, 16.1us, 0.5s or 3min); it must be a number"]),
    ({"shapes": [{"kind": "circle", "radius": 1.0, "sidee": 1}]},
     [".shapes.0.sidee: unknown key; allowed: kind, radius"]),
    ({"shapes": [{"kind": "square", "side": "x"}]},
     [".shapes.0.side: found \"x\"; it must be a whole number or a list"]),
    ({"shapes": [{"kind": "square", "side": 7}]}, [".shapes.0.side: seven is no side"]),
    ({"shapes": [{"kind": "squar"}]},
     [".shapes.0.kind: found \"squar\" (did you mean square?); it must be 'circle' or 'square'"]),
    ({"shapes": [{}]}, [".shapes.0.kind: missing; it must be 'circle' or 'square'"]),
    ({"shapes": {}}, [".shapes: found {}; it must be a list"]),
    ({"title": {"kind": "circle"}}, [".title.radius: missing, and it is needed"]),
    ({"title": 3}, [".title: found 3; it must be a text or a mapping"]),
    ({"mode": "chak"}, [".mode: found \"chak\" (did you mean chalk?); it must be 'ink' or 'chalk'"]),
    ({"mode": False}, [".mode: found false (YAML reads a bare on, off, yes or no as a boolean: write the word in "
                       "quotes); it must be 'ink' or 'chalk'"]),
    ({"flag": "yes"}, [".flag: found \"yes\"; it must be true or false"]),
    ({"titel": "a", "flg": True}, [
        ".titel: unknown key; did you mean title? allowed: title, mode, flag, shapes",
        ".flg: unknown key; did you mean flag? allowed: title, mode, flag, shapes",
    ]),
    ([1], [": found [1]; it must be a mapping"]),
])
def test_a_fault_is_told_with_key_finding_and_what_is_allowed(raw: object, lines: list[str]) -> None:
    assert told(raw) == lines


def test_what_is_right_comes_back() -> None:
    drawing = validated(Drawing, {"shapes": [{"kind": "square", "side": [1, 2]}]}, Place())
    assert drawing.shapes[0].side == [1, 2]


def test_long_values_are_cut() -> None:
    assert shown("x" * 100) == '"' + "x" * 56 + "..."
    assert shown({1: {2}}) == '{"1": "{2}"}'


def test_suggestions() -> None:
    assert suggestion("runing", ["running", "waiting"]) == "did you mean running? allowed: running, waiting"
    assert suggestion("x", []) == "allowed: none"
