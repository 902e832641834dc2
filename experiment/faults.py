"""What pydantic finds wrong with a section, in the words of the file: line, key, what was found, what is allowed."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel, TypeAdapter, ValidationError

from .errors import QUOTE_HINT, TIME_HINT, Place, UserError, close, shown, suggestion

WANTED: Mapping[str, str] = {
    "string_type": "be a text", "dict_type": "be a mapping", "model_type": "be a mapping",
    "model_attributes_type": "be a mapping", "list_type": "be a list",
    "tuple_type": "be a list", "int_type": "be a whole number", "float_type": "be a number",
    "bool_type": "be true or false", "none_required": "be null",
}
"""What pydantic's types of error want, in the words of YAML."""


def validated(schema: Any, raw: object, place: Place, prefix: str = "") -> Any:
    """`raw` as the model (or other type) that `schema` is. Raises `UserError` with one line per problem."""
    try:
        return TypeAdapter(schema).validate_python(raw)
    except ValidationError as error:
        raise explain(error, place, prefix, raw=raw, schema=schema) from error


def explain(
    error: ValidationError, place: Place, prefix: str = "", *, raw: object = None, schema: Any = None,
) -> UserError:
    """A pydantic error as a `UserError`: one line per key, `file:line: key: what was found, what is allowed`.

    `prefix` is the dotted key of the section that was validated, `raw` its content and `schema` what it was validated
    against: with them, names of union members are kept out of the keys, and unknown keys get suggestions.
    """
    faults: dict[str, list[_Fault]] = {}
    for fault in error.errors(include_url=False):
        path = _path(fault, raw)
        found = _fault(fault, _models_at(schema, path[:-1], raw))
        same = faults.setdefault(".".join([prefix, *path] if prefix else path), [])
        if found not in same:
            same.append(found)
    kept = {key: same for key, same in faults.items() if not _told_deeper(key, same, faults)}
    return UserError("\n".join(f"{place.where(key)}: {_joined(same)}" for key, same in kept.items()))


@dataclass(frozen=True, slots=True)
class _Fault:
    """What is wrong with a value, what may help, and what would be right, where these can be said apart."""

    wrong: str
    hints: tuple[str, ...] = ()
    right: str = ""
    structure: bool = False


def _told_deeper(key: str, same: list[_Fault], faults: Mapping[str, list[_Fault]]) -> bool:
    """A mapping fails as a text too, which says nothing beside what is wrong inside it."""
    return all(each.structure for each in same) and any(other.startswith(f"{key}.") for other in faults)


def _joined(same: list[_Fault]) -> str:
    """The faults of one key; members of a union differ only in what would be right."""
    groups: dict[str, list[_Fault]] = {}
    for fault in same:
        groups.setdefault(fault.wrong, []).append(fault)
    return "; ".join(_told(wrong, group) for wrong, group in groups.items())


def _told(wrong: str, group: list[_Fault]) -> str:
    hints = dict.fromkeys(hint for fault in group for hint in fault.hints)
    rights = dict.fromkeys(fault.right for fault in group if fault.right)
    first, *others = rights or [""]
    allowed = " or ".join([f"; it must {first}", *(right.removeprefix("be ") for right in others)]) if first else ""
    return f"{wrong}{''.join(f' ({hint})' for hint in hints)}{allowed}"


def _path(fault: Any, raw: object) -> list[str]:
    """The keys among a pydantic location: names of union members that stand between them are left out."""
    path: list[str] = []
    for index, part in enumerate(fault["loc"]):
        if raw is None or (fault["type"] == "missing" and index == len(fault["loc"]) - 1):
            path.append(str(part))
        elif _has_part(raw, part):
            raw = raw[part]  # type: ignore[index]
            path.append(str(part))
    return path + [_tag_key(fault)] if fault["type"].startswith("union_tag") else path


def _tag_key(fault: Any) -> str:
    """The key (mostly `kind`) whose value tells what a mapping is."""
    return str(fault["ctx"]["discriminator"]).strip("'")


def _has_part(raw: object, part: int | str) -> bool:
    if isinstance(raw, Mapping):
        return part in raw
    return isinstance(raw, list | tuple) and isinstance(part, int) and part < len(raw)


def _fault(fault: Any, models: Sequence[type[BaseModel]]) -> _Fault:
    kind, found, context = fault["type"], fault["input"], fault.get("ctx", {})
    if kind == "missing":
        return _Fault("missing, and it is needed")
    if kind == "extra_forbidden":
        allowed = dict.fromkeys(name for model in models for name in model.model_fields)
        return _Fault(f"unknown key; {suggestion(str(fault['loc'][-1]), allowed)}" if allowed else "unknown key")
    if kind in ("value_error", "assertion_error"):
        return _Fault(str(context["error"]))
    if kind.startswith("union_tag"):
        return _tagged(found, _tag_key(fault), models)
    right = WANTED.get(kind) or _after_should(fault["msg"])
    hints = tuple(_hints(kind, found, str(context.get("expected", ""))))
    wrong = f"found {shown(found)}" if right else f"found {shown(found)}; {fault['msg']}"
    return _Fault(wrong, hints, right, isinstance(found, Mapping | list) and kind in WANTED)


def _after_should(message: str) -> str:
    """`be greater than 0` of `Input should be greater than 0`; nothing of a message in a model's own words."""
    found = re.match(r"\w+ should (.*)", message, re.DOTALL)
    return found[1] if found else ""


def _tagged(found: Any, key: str, models: Sequence[type[BaseModel]]) -> _Fault:
    tag = found.get(key) if isinstance(found, Mapping) else found
    fields = [model.model_fields[key] for model in models if key in model.model_fields]
    names = [f"'{name}'" for field in fields for name in get_args(field.annotation)]
    right = f"be {' or '.join(names)}" if names else ""
    wrong = "missing" if tag is None else f"found {shown(tag)}"
    return _Fault(wrong, tuple(_hints("literal_error", tag, right)), right)


def _hints(kind: str, found: object, expected: str) -> Iterator[str]:
    if isinstance(found, bool) and kind in ("literal_error", "enum", "string_type"):
        yield QUOTE_HINT
    if not isinstance(found, str):
        return
    if kind in ("literal_error", "enum") and (meant := close(found, re.findall(r"'([^']*)'", expected))):
        yield f"did you mean {' or '.join(meant)}?"
    if kind.startswith(("int", "float")) and re.fullmatch(r"[-+.0-9eE]+", found):
        yield "a number in quotes is a text"
    elif kind.startswith("float") and re.match(r"[-+]?[.0-9]", found):
        yield TIME_HINT


def _models_at(schema: Any, path: list[str], raw: object) -> list[type[BaseModel]]:
    """What the mapping at `path` below `schema` may be."""
    models = _fitting(_models_in(schema), raw)
    for part in path:
        raw = _part(raw, part)
        annotations = [each.model_fields[part].annotation for each in models if part in each.model_fields]
        inner = [model for annotation in annotations for model in _models_in(annotation)]
        models = _fitting(inner if annotations else models, raw)  # none: an index or a key of a plain mapping
    return models


def _part(raw: object, part: str) -> object:
    if isinstance(raw, Mapping):
        return raw.get(part)
    return raw[int(part)] if isinstance(raw, list) and part.isdigit() and int(part) < len(raw) else None


def _fitting(models: Iterable[type[BaseModel]], raw: object) -> list[type[BaseModel]]:
    """Those whose `kind` is as in `raw`; all where that leaves none."""
    known = list(models)
    kind = raw.get("kind") if isinstance(raw, Mapping) else None
    kinds = {model: get_args(model.model_fields["kind"].annotation) for model in known if "kind" in model.model_fields}
    return [model for model in known if kind in kinds.get(model, ())] or known


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models_in(inner)
