"""An engine's log lines, replayed from a trace."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Protocol

from . import log_mistralrs, log_sglang, log_vllm
from .run import Run

DAWN = datetime(2026, 1, 1, tzinfo=UTC)
"""The date that a simulated clock shows at 0 s where none is given."""


class LogLine(Protocol):
    """What every engine's line holds; `text` is the line as the engine prints it, without its time stamp.

    `forward_width` is that of the step whose gauges the line shows; no engine here prints it.
    """

    @property
    def time(self) -> float: ...
    @property
    def running(self) -> int: ...
    @property
    def waiting(self) -> int: ...
    @property
    def forward_width(self) -> int: ...
    @property
    def text(self) -> str: ...


@dataclass(frozen=True, slots=True)
class LogStyle:
    """How one engine logs. `lines(run, interval, **options)` gives its lines, `stamp` what stands before a line."""

    name: str
    interval: float
    lines: Callable[..., Sequence[LogLine]]
    stamp: Callable[[datetime], str]


def _rust_stamp(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%S.%f}Z  INFO {log_mistralrs.TARGET}: "


def _plain_stamp(moment: datetime) -> str:
    return f"{moment:%H:%M:%S.%f} "


STYLES: Mapping[str, LogStyle] = {
    style.name: style for style in (
        LogStyle("plain", log_mistralrs.INTERVAL, partial(log_mistralrs.lines, hits_of="prefix_queries"), _plain_stamp),
        LogStyle("mistralrs", log_mistralrs.INTERVAL, log_mistralrs.lines, _rust_stamp),
        LogStyle("sglang", log_sglang.INTERVAL, log_sglang.lines, log_sglang.stamp),
        LogStyle("vllm", log_vllm.INTERVAL, log_vllm.lines, log_vllm.stamp),
    )
}


def log_style(name: str) -> LogStyle:
    """Raises ValueError that lists the styles there are."""
    if name not in STYLES:
        raise ValueError(f"no log style {name!r}; there are {', '.join(STYLES)}")
    return STYLES[name]


def interval_lines(
    run: Run, style: str = "mistralrs", interval: float | None = None, **options: Any,
) -> Sequence[LogLine]:
    """The lines that the engine `style` would have logged; `interval` in seconds (None: that engine's own)."""
    chosen = log_style(style)
    return chosen.lines(run, chosen.interval if interval is None else interval, **options)


def stamped(line: LogLine, style: str = "mistralrs", start: datetime = DAWN) -> str:
    """The whole line with its time stamp, for a run that began at `start`."""
    return log_style(style).stamp(start + timedelta(seconds=line.time)) + line.text
