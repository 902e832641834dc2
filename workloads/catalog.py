"""What workloads there are, one line each."""

from dataclasses import dataclass

from . import arrivals, lengths
from .formats import FORMATS


@dataclass(frozen=True, slots=True)
class Entry:
    """`group`: 'kind', 'lengths', 'arrivals' or 'format'."""

    group: str
    name: str
    about: str


def catalog() -> list[Entry]:
    """Kinds of workload first, then what they are made of."""
    return [
        Entry("kind", "synthetic", "requests made up from rules: prompt, output (or rows), arrivals, prefix, seed"),
        Entry("kind", "trace", "requests read from a file: path, format, window, limit, rate, scale_prompt, ..."),
        *(Entry("lengths", name, rule.about) for name, rule in lengths.KINDS.items()),
        *(Entry("arrivals", name, rule.about) for name, rule in arrivals.KINDS.items()),
        *(Entry("format", format.name, format.about) for format in FORMATS),
    ]
