"""YAML as an experiment uses it: safe, no duplicate keys, plain numbers as everyone writes them, lines kept."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import yaml

from .errors import QUOTE_HINT, UserError

MOST_KEYS = 200_000
DEEPEST = 50
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9_]*|0x[0-9a-fA-F]+)\Z")
_FLOAT = re.compile(
    r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?\Z|[-+]?\.(?:inf|nan)\Z"
)
_TAGS = {f"tag:yaml.org,2002:{name}" for name in ("bool", "float", "int", "map", "merge", "null", "seq", "str")}
_KEPT = ("tag:yaml.org,2002:bool", "tag:yaml.org,2002:null", "tag:yaml.org,2002:merge")


class _Loader(yaml.SafeLoader):
    """Safe loading in which `1e-3` is a number, and dates, `1:30` and `010` stay texts."""

    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag in _KEPT]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


_Loader.add_implicit_resolver("tag:yaml.org,2002:int", _INT, list("-+0123456789"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+.0123456789"))


@dataclass(frozen=True, slots=True)
class YamlText:
    """What a YAML text says, and on which line (from 1) each dotted key stands; items of a list count from 0."""

    value: Any
    lines: dict[str, int] = field(default_factory=dict)


def read_yaml(text: str, source: str) -> YamlText:
    """Raises `UserError` with `source` and line on what is not YAML, on a key given twice and on a key that is no text
    or number."""
    loader = _new_loader(text, source)
    try:
        node = loader.get_single_node()
        if node is None:
            return YamlText(None)
        lines = dict(islice(_walk(node, (), (), source), MOST_KEYS))
        if len(lines) == MOST_KEYS:
            raise UserError(f"{source}: more than {MOST_KEYS} keys and items; put long lists into a file of their own")
        return YamlText(loader.construct_document(node), lines)
    except yaml.YAMLError as error:
        raise UserError(_syntax(error, source)) from error
    except (LookupError, ValueError, RecursionError) as error:  # an explicit tag that does not fit, as in `!!int x`
        raise error if isinstance(error, UserError) else UserError(f"{source}: {_why(error)}") from error
    finally:
        loader.dispose()


def _new_loader(text: str, source: str) -> _Loader:
    try:
        return _Loader(text)
    except yaml.YAMLError as error:
        raise UserError(f"{source}: not a YAML text: {' '.join(str(error).split())}") from error


def _why(error: BaseException) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else f"a value does not fit its tag ({error})"


def _syntax(error: yaml.YAMLError, source: str) -> str:
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return f"{source}: not YAML: {' '.join(str(error).split())}"
    context = f" {error.context}" if error.context else ""
    return f"{source}:{error.problem_mark.line + 1}: not YAML: {error.problem}{context}"


def _walk(
    node: yaml.Node, path: tuple[str, ...], above: tuple[yaml.Node, ...], source: str,
) -> Iterator[tuple[str, int]]:
    """Every dotted key below `node` with its line."""
    if node.tag not in _TAGS:
        raise UserError(f"{source}:{_line(node)}: {'.'.join(path)}: the tag {node.tag} has no meaning here")
    if any(node is each for each in above):
        raise UserError(f"{source}:{_line(node)}: {'.'.join(path)}: contains itself")
    if len(above) > DEEPEST:
        raise UserError(f"{source}:{_line(node)}: nested more than {DEEPEST} deep")
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield ".".join([*path, str(index)]), _line(item)
            yield from _walk(item, (*path, str(index)), (*above, node), source)
    elif isinstance(node, yaml.MappingNode):
        seen: dict[str, int] = {}
        for key, value in node.value:
            name = _name(key, seen, source)
            yield ".".join([*path, name]), _line(key)
            yield from _walk(value, (*path, name), (*above, node), source)


def _name(key: yaml.Node, seen: dict[str, int], source: str) -> str:
    line = _line(key)
    if not isinstance(key, yaml.ScalarNode):
        raise UserError(f"{source}:{line}: a key must be a text, not a list or a mapping")
    name = str(key.value)
    if key.tag.endswith(":bool"):
        raise UserError(f"{source}:{line}: the key {name} is no text: {QUOTE_HINT}")
    if key.tag.endswith(":null"):
        raise UserError(f"{source}:{line}: a key is missing before the colon")
    if name in seen:
        raise UserError(f"{source}:{line}: the key {name} stands twice, first on line {seen[name]}: keep one")
    seen[name] = line
    return name


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1
