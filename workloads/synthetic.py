"""Requests made up from rules: lengths, arrivals, shared prefixes."""

from pathlib import Path

from .arrivals import ClosedLoop
from .closed_loop import ClosedLoopWorkload
from .config import Prefix, SyntheticConfig
from .error import WorkloadError
from .files import find
from .format import Reading
from .format_plain import PLAIN
from .limits import max_tokens_of, priorities_of
from .pieces import Prompt, content, with_prefix
from .requests import Columns, OpenLoop, cap_note, make_requests
from .streams import stream

NAME = "synthetic"


def make_synthetic(config: SyntheticConfig, base: Path | None = None) -> OpenLoop | ClosedLoopWorkload:
    """Raises WorkloadError (or OSError) where a file of rows cannot be read."""
    prompts, outputs = _lengths(config, base)
    columns = Columns(
        _times(config, len(prompts)),
        _prompts(config, prompts),
        outputs,
        max_tokens_of(config.max_tokens, outputs),
        priorities_of(config.priority, len(prompts)),
    )
    requests, notes = make_requests(columns), tuple(cap_note(columns))
    if isinstance(config.arrivals, ClosedLoop):
        loop = config.arrivals
        return ClosedLoopWorkload(NAME, requests, loop.closed_loop, loop.think_time, notes)
    return OpenLoop(NAME, requests, notes)


def _lengths(config: SyntheticConfig, base: Path | None) -> tuple[list[int], list[int]]:
    if config.rows is not None:
        return _joint(config, _table(config.rows, base))
    assert config.prompt is not None and config.output is not None
    count = config.count or _explicit_count(config)
    return (
        config.prompt.draw(count, stream(config.seed, "prompt")),
        config.output.draw(count, stream(config.seed, "output")),
    )


def _explicit_count(config: SyntheticConfig) -> int:
    return len(getattr(config.arrivals, "explicit", ()))


def _joint(config: SyntheticConfig, table: list[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """The rows over and over, or drawn at random with replacement."""
    count = config.count or _explicit_count(config) or len(table)
    if config.rows_order == "random":
        places = stream(config.seed, "rows").integers(len(table), size=count).tolist()
    else:
        places = [index % len(table) for index in range(count)]
    return [table[place][0] for place in places], [table[place][1] for place in places]


def _table(rows: str | tuple[tuple[int, int], ...], base: Path | None) -> list[tuple[int, int]]:
    if not isinstance(rows, str):
        return list(rows)
    path = find(rows, base)
    read = PLAIN.read(path, Reading())
    table = list(zip(read.prompts.tolist(), read.outputs.tolist(), strict=True))
    if any(0 in pair for pair in table):
        raise WorkloadError(f"{path}: a row has no prompt or no output tokens: rows of a synthetic workload need both")
    return table


def _times(config: SyntheticConfig, count: int) -> list[float]:
    return config.arrivals.times(count, stream(config.seed, "arrivals"))


def _prompts(config: SyntheticConfig, lengths: list[int]) -> list[Prompt]:
    if config.prefix is None:
        return [content(f"r{index}", tokens) for index, tokens in enumerate(lengths)]
    groups = _groups(config.prefix, config.seed, len(lengths))
    return [
        with_prefix(f"prefix {group}", config.prefix.tokens, f"r{index}", tokens)
        for index, (group, tokens) in enumerate(zip(groups, lengths, strict=True))
    ]


def _groups(prefix: Prefix, seed: int, count: int) -> list[int]:
    if prefix.order == "random":
        return [int(group) for group in stream(seed, "prefix").integers(prefix.groups, size=count)]
    return [index % prefix.groups for index in range(count)]
